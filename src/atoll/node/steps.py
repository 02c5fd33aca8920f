"""Where the time of a creation goes, step by step."""

from __future__ import annotations

import time


class Steps:
    """Where the time of a creation goes, in milliseconds."""

    def __init__(self) -> None:
        self.ms: dict[str, float] = {}
        self.failed: list[str] = []
        """Faster ways that were tried and failed."""
        self._last_s = time.perf_counter()

    def done(self, step: str) -> None:
        now_s = time.perf_counter()
        self.ms[step] = round((now_s - self._last_s) * 1000, 3)
        self._last_s = now_s
