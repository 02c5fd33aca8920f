"""Looking at the memory of sandboxes from outside, where a look costs microseconds, so that their guards can rest.

    moving ──calm for a while──▶ resting ──memory moves, or is nearly used up──▶ moving

A look inside wakes the sandbox up, which costs it half a millisecond of processor (seen): two hundred with a program
that rests took a quarter of two processors. The guard inside ends who must be ended, as ever; all that is decided here
is whether it needs to look. It is told on a line, an open connection, again and again; each time the guest answers
with the number of its processes. Whatever happens to this process, its lines end with it, and all guards look again.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import TaskGroup

from atoll.model import limits
from atoll.model.errors import AtollError
from atoll.model.headroom import is_near
from atoll.node.cgroups import MemoryGauge
from atoll.wire import guest

_COUNT_DIGITS_MAX = 7  # more than there can be processes; the guest may say anything

Open = Callable[[], Awaitable[socket.socket]]


class Watched:
    """One sandbox: how much it uses, whether that moves, and the line to its guard."""

    def __init__(
        self, gauge: MemoryGauge, memory_bytes: int, line: Open, stands_still: Callable[[], bool] = lambda: False
    ) -> None:
        self.opening = False
        self.stands_still = stands_still
        """Whether it does, by our own doing: then it uses nothing, and hears nothing."""
        self.resting = False
        """Whether its guard is, because that was the last word to it."""
        self.processes: int | None = None
        """How many it had when it was last heard, if it ever was, by its own word."""
        self._memory_bytes = memory_bytes
        self._gauge = gauge
        self._open = line
        self._line: socket.socket | None = None
        self._base_bytes = 0
        self._calm_since_s = self._alone_since_s = time.monotonic()
        self._said_s = 0.0
        self._heard_s = 0.0

    def heard_lately(self) -> bool:
        """Whether the guest answered one of the last signs of life."""
        return self._line is not None and time.monotonic() - self._heard_s < 2 * limits.MEMORY_WATCH_SIGN_S

    def close(self) -> None:
        self.hang_up()
        self._gauge.close()

    def hang_up(self) -> None:
        """The guard looks itself from now on, and has nobody to answer to."""
        self._calm_since_s = self._alone_since_s = time.monotonic()
        self.resting = False
        if self._line is not None:
            self._line.close()
            self._line = None

    def look(self, now_s: float) -> None:
        """Look once, and tell the guard if that changes what it has to do."""
        if self._moved():
            self._calm_since_s = now_s
        rests = now_s - self._calm_since_s >= limits.MEMORY_WATCH_CALM_S
        if self._line is None:
            return
        try:
            if self._heard_s <= self._said_s:  # no answer yet
                self._hear(self._line, now_s)
            if rests != self.resting or now_s - self._said_s >= limits.MEMORY_WATCH_SIGN_S:
                self._say(self._line, now_s, rests=rests)
        except OSError:
            self.hang_up()

    def _moved(self) -> bool:
        used_bytes = self._gauge.used_bytes()
        near = is_near(used_bytes, self._memory_bytes) and is_near(self._gauge.held_bytes(), self._memory_bytes)
        if near or used_bytes >= self._base_bytes + limits.MEMORY_WATCH_MOVE_BYTES:
            self._base_bytes = used_bytes
            return True
        self._base_bytes = min(self._base_bytes, used_bytes)
        return False

    def _hear(self, line: socket.socket, now_s: float) -> None:
        try:
            said = line.recv(64)
        except BlockingIOError:
            return
        if not said:
            raise ConnectionResetError
        self._heard_s = now_s
        count = said.split()[-1:]
        if count and count[0].isdigit() and len(count[0]) <= _COUNT_DIGITS_MAX:
            self.processes = int(count[0])

    def _say(self, line: socket.socket, now_s: float, *, rests: bool) -> None:
        self._said_s, self.resting = now_s, rests
        line.send(guest.LINE_REST if rests else guest.LINE_LOOK)

    def wants_line(self, now_s: float) -> bool:
        """Not at once: most of what a sandbox does, it does when it begins."""
        return self._line is None and not self.opening and now_s - self._alone_since_s >= limits.MEMORY_WATCH_CALM_S

    async def open(self) -> None:
        """Have a line, unless it was made to stand still or taken away meanwhile."""
        asked_s = time.monotonic()
        line = await self._open()
        if self._alone_since_s > asked_s or self.stands_still():
            line.close()
            return
        line.setblocking(False)
        self._line = line
        self._heard_s, self._said_s = time.monotonic(), 0.0


class MemoryWatch:
    """All sandboxes of one node, those that wait for an owner too."""

    def __init__(self) -> None:
        self._all: set[Watched] = set()
        self._some = asyncio.Event()
        self._places = anyio.CapacityLimiter(limits.MEMORY_WATCH_LEASES_AT_ONCE)

    def add(self, watched: Watched) -> None:
        self._all.add(watched)
        self._some.set()

    def remove(self, watched: Watched) -> None:
        """Idempotent."""
        if watched in self._all:
            self._all.discard(watched)
            watched.close()

    async def run(self) -> None:
        """Look at all of them, again and again; when it ends, every guard looks itself, until it runs again."""
        try:
            async with anyio.create_task_group() as tasks:
                while True:
                    await self._some.wait()
                    await asyncio.sleep(limits.MEMORY_WATCH_EVERY_S)
                    self._look(tasks)
        finally:
            for watched in list(self._all):
                watched.hang_up()

    def _look(self, tasks: TaskGroup) -> None:
        now_s = time.monotonic()
        for watched in list(self._all):
            if watched.stands_still():
                continue
            try:
                watched.look(now_s)
            except (OSError, ValueError):  # its control group is gone, and so is it
                self.remove(watched)
                continue
            if watched.wants_line(now_s):
                watched.opening = True
                tasks.start_soon(self._open, watched)
        if not self._all:
            self._some.clear()

    async def _open(self, watched: Watched) -> None:
        try:
            async with self._places:
                await watched.open()
        except AtollError:
            watched.hang_up()  # it is asked again a while later
        finally:
            watched.opening = False
