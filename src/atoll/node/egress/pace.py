"""A pace: how often something may happen, with some of it in advance; pure, for whoever brings a clock."""

from __future__ import annotations


class Pace:
    """So many a second in the long run, and so many at once after a rest."""

    def __init__(self, per_s: float, at_once: int) -> None:
        self._every_s = 1 / per_s
        self._ahead_s = at_once / per_s
        self._next_s = 0.0

    def take(self, now_s: float) -> float:
        """One happens; how long the next one has to wait, in seconds."""
        self._next_s = max(self._next_s, now_s - self._ahead_s) + self._every_s
        return max(0.0, self._next_s - now_s)
