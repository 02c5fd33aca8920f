"""Visits to ports in the audit log: told together where they are alike, so that a flood of them is a few lines.

The first of a kind is told within a second. While more of the same come, the log hears of them once a minute, with
their number and their bytes. What is beyond the kinds that are kept of one sandbox is told as one kind, from anywhere.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import anyio

from atoll.control.events import Events
from atoll.model import limits
from atoll.model.event import SYSTEM

ACTION = "ingress.connection"


@dataclass(frozen=True, slots=True)
class Kind:
    """What makes visits alike: whose door, how it was opened or why not, and from where."""

    owner: str
    sandbox_id: str
    port: int
    result: str
    by: str = ""
    key_id: str = ""
    source: str = ""
    protocol: str = ""

    def of_any_source(self) -> Kind:
        return Kind(self.owner, self.sandbox_id, 0, self.result)


@dataclass(slots=True)
class Tally:
    """Visits of one kind that the log has not heard of yet."""

    due_s: float
    count: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    longest_s: float = 0.0


class Tallies:
    """Pure: time is given. A kind stays for a while after it was told of, so that the next of it waits its turn."""

    def __init__(self) -> None:
        self._open: dict[Kind, Tally] = {}
        self._kinds: Counter[str] = Counter()

    def add(self, kind: Kind, now_s: float, *, bytes_in: int = 0, bytes_out: int = 0, duration_s: float = 0.0) -> None:
        if kind not in self._open and self._kinds[kind.sandbox_id] >= limits.VISIT_KINDS_MAX:
            kind = kind.of_any_source()
        tally = self._open.get(kind)
        if tally is None:
            tally = self._open[kind] = Tally(now_s + limits.VISIT_FIRST_REPORT_S)
            self._kinds[kind.sandbox_id] += 1
        tally.count += 1
        tally.bytes_in += bytes_in
        tally.bytes_out += bytes_out
        tally.longest_s = max(tally.longest_s, duration_s)

    def take_due(self, now_s: float) -> list[tuple[Kind, Tally]]:
        """What is to be told now. A kind of which nothing came since it was told last is forgotten."""
        due = [(kind, tally) for kind, tally in self._open.items() if tally.due_s <= now_s]
        for kind, tally in due:
            if tally.count:
                self._open[kind] = Tally(now_s + limits.VISIT_REPORT_S)
            else:
                self._forget(kind)
        return [(kind, tally) for kind, tally in due if tally.count]

    def next_due_s(self) -> float | None:
        return min((tally.due_s for tally in self._open.values()), default=None)

    def _forget(self, kind: Kind) -> None:
        del self._open[kind]
        self._kinds[kind.sandbox_id] -= 1
        if not self._kinds[kind.sandbox_id]:
            del self._kinds[kind.sandbox_id]


class VisitLog:
    """Tells the audit log."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._tallies = Tallies()
        self._added = anyio.Event()

    def note(self, kind: Kind, *, bytes_in: int = 0, bytes_out: int = 0, duration_s: float = 0.0) -> None:
        self._tallies.add(kind, anyio.current_time(), bytes_in=bytes_in, bytes_out=bytes_out, duration_s=duration_s)
        self._added.set()

    async def step(self) -> None:
        """Wait for what is to be told next, and tell it."""
        next_s = self._tallies.next_due_s()
        wait_s = limits.VISIT_REPORT_S if next_s is None else max(0.0, next_s - anyio.current_time())
        self._added = anyio.Event()
        with anyio.move_on_after(wait_s):
            await self._added.wait()
            # A new kind may be due before the others; and many come at once.
            await anyio.sleep(min(limits.VISIT_FIRST_REPORT_S, wait_s))
        self._tell(anyio.current_time())

    def close(self) -> None:
        """Tell all that is left."""
        self._tell(float("inf"))

    def _tell(self, now_s: float) -> None:
        for kind, tally in self._tallies.take_due(now_s):
            detail = {
                "port": str(kind.port or ""),
                "by": kind.by,
                "protocol": kind.protocol,
                "count": str(tally.count),
                "bytes_in": str(tally.bytes_in or ""),
                "bytes_out": str(tally.bytes_out or ""),
                "longest_s": str(round(tally.longest_s, 3) or ""),
            }
            event = self._events.of(
                None, ACTION, owner=kind.owner, target=kind.sandbox_id, result=kind.result, detail=detail
            )
            self._events.report(replace(event, actor=kind.key_id or SYSTEM, source=kind.source))
