"""A turnstile for creates: so many at once, the others in line, and the line is fair between owners.

A machine makes sandboxes fastest a few at a time. Whoever asks for a hundred at once stands in line behind their own
hundred, not in front of somebody who asks for one: turns go round from owner to owner. The line has an end, and who
comes after it is refused at once rather than kept waiting for what will not come in time. Nobody fills it alone: when
it is full, whoever has fewer in it than another takes the place of that other's last.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from atoll.model.errors import Unavailable


class Turnstile:
    """`at_once` go through side by side, `waiting_max` stand in line."""

    def __init__(self, at_once: int, waiting_max: int) -> None:
        self._free = at_once
        self._waiting_max = waiting_max
        self._lines: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._waiting = 0

    @property
    def waiting(self) -> int:
        return self._waiting

    @asynccontextmanager
    async def turn(self, owner: str) -> AsyncIterator[None]:
        """Wait for this owner's turn; the place is free again when the block ends."""
        await self._enter(owner)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, owner: str) -> None:
        if self._free and not self._waiting:
            self._free -= 1
            return
        if self._waiting >= self._waiting_max:
            self._make_room(owner)
        called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(owner, deque()).append(called)
        self._waiting += 1
        try:
            await called
        except asyncio.CancelledError:
            if called.cancelled() or not called.done():
                self._give_up(owner, called)
            elif called.exception() is None:
                self._leave()  # it was called and left in the same moment: the turn goes to the next
            raise

    def _make_room(self, owner: str) -> None:
        """In a full line the last of the longest one goes; unless the line of who comes would be as long as that.

        Before that whoever was cancelled in this very moment, and has not had the time to leave.
        """
        gone = [(one, called) for one, line in self._lines.items() for called in line if called.done()]
        for one, called in gone:
            self._give_up(one, called)
        if gone:
            return
        longest = max(self._lines, key=lambda one: len(self._lines[one]))
        if len(self._lines[longest]) <= len(self._lines.get(owner, ())) + 1:
            raise _full()
        self._lines[longest][-1].set_exception(_full())
        self._give_up(longest, self._lines[longest][-1])

    def _leave(self) -> None:
        self._free += 1
        while self._free and self._lines:
            owner, line = self._lines.popitem(last=False)
            called = line.popleft()
            self._waiting -= 1
            if line:
                self._lines[owner] = line  # to the end: another owner is next
            if not called.done():
                self._free -= 1
                called.set_result(None)

    def _give_up(self, owner: str, called: asyncio.Future[None]) -> None:
        line = self._lines.get(owner)
        if line is not None and called in line:
            line.remove(called)
            self._waiting -= 1
            if not line:
                del self._lines[owner]


def _full() -> Unavailable:
    return Unavailable(
        "too many sandboxes are being created", code="create_queue_full", hint="Try again in a few seconds."
    )
