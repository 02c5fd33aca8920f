"""How much of what a sandbox does on its network the audit log is told; pure, for whoever brings the time.

The log is for people and on a disk: a sandbox that knocks without end fills its own memory only. Each kind of event has
an allowance of its own for each minute, so that what is done all the time hides nothing that is done once: a question,
a secret that was used, or one that strayed. That there is more is told at once; how much, when the minute is over.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from atoll.model import limits
from atoll.wire.network import NetworkEvent


class Allowance:
    """That of one sandbox."""

    def __init__(self) -> None:
        self._minute = 0
        self._told: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._names: set[str] = set()

    def take(self, event: NetworkEvent) -> list[NetworkEvent]:
        """What is told of now that this has happened."""
        told = self.settle(event.number, event.at)
        # Programs ask for a refused name again and again: that it was asked for is told once.
        if event.kind == "lookup" and event.name in self._names:
            return told
        if self._told[event.kind] < _per_minute(event.kind):
            self._told[event.kind] += 1
            if event.kind == "lookup":
                self._names.add(event.name)
            return [*told, event]
        self._dropped[event.kind] += 1
        return [*told, _limit(event.number, event.at, event.kind)] if self._dropped[event.kind] == 1 else told

    def settle(self, number: int, now: datetime, *, ended: bool = False) -> list[NetworkEvent]:
        """What is told of a minute that is over, or ends now with everything: how many of each kind were dropped."""
        minute = int(now.timestamp() // 60)
        if minute == self._minute and not ended:
            return []
        dropped, self._dropped = self._dropped, Counter()
        self._minute = minute
        self._told.clear()
        self._names.clear()
        return [_limit(number, now, kind, count) for kind, count in dropped.items()]


def _per_minute(kind: str) -> int:
    return limits.LOOKUP_REPORTS_PER_MINUTE if kind == "lookup" else limits.NETWORK_REPORTS_PER_MINUTE


def _limit(number: int, at: datetime, kind: str, dropped: int = 0) -> NetworkEvent:
    return NetworkEvent(number, at, "limit", reason=f"reports_per_minute: {kind}", dropped=dropped)
