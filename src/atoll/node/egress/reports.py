"""What gates report, on its way to the audit log: each sandbox in its turn, so that one that does much hides no other.

Questions for a person go first. Where more waits than may, those of whom most waits lose their oldest, and are told
how many.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque

from atoll.model import limits
from atoll.wire.network import NetworkEvent

_Line = OrderedDict[str, deque[NetworkEvent]]


class Reports:
    """The reports of all gates of a node that nobody has heard yet."""

    def __init__(self) -> None:
        self._asks: _Line = OrderedDict()
        self._others: _Line = OrderedDict()
        self._count = 0
        self._lost: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._count

    def add(self, sandbox_id: str, event: NetworkEvent) -> None:
        line = self._asks if event.kind == "ask" else self._others
        queue = line.setdefault(sandbox_id, deque())
        queue.append(event)
        self._count += 1
        if self._count > limits.NETWORK_REPORTS_WAITING_MAX:
            self._lose_one(line, sandbox_id)

    def _lose_one(self, line: _Line, sandbox_id: str) -> None:
        """A report of whoever has just added one, if that is no small part of all; else of whoever has most."""
        line = self._others or line
        if len(line.get(sandbox_id, ())) * len(line) < self._count:
            sandbox_id = max(line, key=lambda key: len(line[key]))
        self._lost[sandbox_id] += 1
        self._take_of(line, sandbox_id)

    def take(self) -> tuple[str, NetworkEvent]:
        """The next one; IndexError if there is none."""
        line = self._asks or self._others
        if not line:
            raise IndexError
        sandbox_id, queue = next(iter(line.items()))
        lost = self._lost.pop(sandbox_id, 0)
        if lost:
            return sandbox_id, NetworkEvent(queue[0].number, queue[0].at, "limit", reason="reports_lost", dropped=lost)
        event = self._take_of(line, sandbox_id)
        if sandbox_id in line:
            line.move_to_end(sandbox_id)
        return sandbox_id, event

    def _take_of(self, line: _Line, sandbox_id: str) -> NetworkEvent:
        queue = line[sandbox_id]
        event = queue.popleft()
        self._count -= 1
        if not queue:
            del line[sandbox_id]
        return event
