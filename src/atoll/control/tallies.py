"""What is alike in the audit log told together, so that a flood of it is a few lines.

The first of a kind is told within a second. While more of the same come, the log hears of them once a minute, with
their number. What is beyond the kinds that are kept of one crowd is told as one kind, from anywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

import anyio

from atoll.model import limits


class Alike(Hashable, Protocol):
    """What makes things the same to whoever reads the log."""

    @property
    def crowd(self) -> Hashable:
        """Those that share a bound on how many kinds of them are told apart."""
        ...

    def of_any_source(self) -> Self:
        """The kind that this one is told as when there are too many."""
        ...


K = TypeVar("K", bound=Alike)


@dataclass(slots=True)
class Tally:
    """Things of one kind that the log has not heard of yet."""

    due_s: float
    count: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    longest_s: float = 0.0


class Tallies(Generic[K]):
    """Pure: time is given. A kind stays for a while after it was told of, so that the next of it waits its turn."""

    def __init__(self) -> None:
        self._open: dict[K, Tally] = {}
        self._kinds: Counter[Hashable] = Counter()

    def add(self, kind: K, now_s: float, *, bytes_in: int = 0, bytes_out: int = 0, duration_s: float = 0.0) -> None:
        if kind not in self._open and self._kinds[kind.crowd] >= limits.VISIT_KINDS_MAX:
            kind = kind.of_any_source()
        tally = self._open.get(kind)
        if tally is None:
            tally = self._open[kind] = Tally(now_s + limits.VISIT_FIRST_REPORT_S)
            self._kinds[kind.crowd] += 1
        tally.count += 1
        tally.bytes_in += bytes_in
        tally.bytes_out += bytes_out
        tally.longest_s = max(tally.longest_s, duration_s)

    def take_due(self, now_s: float) -> list[tuple[K, Tally]]:
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

    def _forget(self, kind: K) -> None:
        del self._open[kind]
        self._kinds[kind.crowd] -= 1
        if not self._kinds[kind.crowd]:
            del self._kinds[kind.crowd]


class TallyLog(Generic[K]):
    """Tells what is due, when it is due."""

    def __init__(self, tell: Callable[[K, Tally], None]) -> None:
        self._tell = tell
        self._tallies: Tallies[K] = Tallies()
        self._added = anyio.Event()

    def note(self, kind: K, *, bytes_in: int = 0, bytes_out: int = 0, duration_s: float = 0.0) -> None:
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
        self._tell_due(anyio.current_time())

    def close(self) -> None:
        """Tell all that is left."""
        self._tell_due(float("inf"))

    def _tell_due(self, now_s: float) -> None:
        for kind, tally in self._tallies.take_due(now_s):
            self._tell(kind, tally)
