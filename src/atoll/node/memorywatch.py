"""Looking at the memory of sandboxes from outside, where a look costs microseconds, so that their guards can rest.

    moving ──calm for a while──▶ resting (a lease: an open connection) ──memory moves, or is nearly used up──▶ moving

A look inside wakes the sandbox up, which costs it half a millisecond of processor (seen): two hundred with a program
that rests took a quarter of two processors. The guard inside ends who must be ended, as ever; all that is decided here
is whether it needs to look. Whatever happens to this process, its connections end with it, and all guards look again.
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

_SIGN = b"."

Lease = Callable[[], Awaitable[socket.socket]]


class Watched:
    """One sandbox: how much it uses, whether that moves, and the lease of its guard."""

    def __init__(
        self, gauge: MemoryGauge, memory_bytes: int, lease: Lease, stands_still: Callable[[], bool] = lambda: False
    ) -> None:
        self.leasing = False
        self.stands_still = stands_still
        """Whether it does, by our own doing: then it uses nothing, and hears nothing."""
        self._memory_bytes = memory_bytes
        self._gauge = gauge
        self._lease = lease
        self._line: socket.socket | None = None
        self._base_bytes = 0
        self._calm_since_s = time.monotonic()
        self._signed_s = 0.0
        self._heard_s = 0.0

    @property
    def resting(self) -> bool:
        return self._line is not None

    def heard_lately(self) -> bool:
        """Whether the guest answered one of the last signs of life."""
        return self.resting and time.monotonic() - self._heard_s < 2 * limits.MEMORY_WATCH_SIGN_S

    def close(self) -> None:
        self.stir()
        self._gauge.close()

    def stir(self) -> None:
        """The guard looks itself from now on."""
        self._calm_since_s = time.monotonic()
        if self._line is not None:
            self._line.close()
            self._line = None

    def look(self, now_s: float) -> bool:
        """Look once, and wake the guard if it must be; whether all has been calm so long that it may rest."""
        used_bytes = self._gauge.used_bytes()
        near = is_near(used_bytes, self._memory_bytes) and is_near(self._gauge.held_bytes(), self._memory_bytes)
        if near or used_bytes >= self._base_bytes + limits.MEMORY_WATCH_MOVE_BYTES:
            self._base_bytes = used_bytes
            self.stir()
            return False
        self._base_bytes = min(self._base_bytes, used_bytes)
        if self._line is not None:
            self._keep(self._line, now_s)
        return now_s - self._calm_since_s >= limits.MEMORY_WATCH_CALM_S

    def _keep(self, line: socket.socket, now_s: float) -> None:
        if now_s - self._signed_s < limits.MEMORY_WATCH_SIGN_S:
            return
        self._signed_s = now_s
        try:
            line.send(_SIGN)
            if not line.recv(64):
                raise ConnectionResetError
            self._heard_s = now_s
        except BlockingIOError:
            return  # no answer to the last sign yet
        except OSError:
            self.stir()

    async def lease(self) -> None:
        """Tell the guard that it may rest. If memory moved or it was made to stand still meanwhile, it may not."""
        asked_s = time.monotonic()
        line = await self._lease()
        if self._calm_since_s > asked_s or self.stands_still() or self._line is not None:
            line.close()
            return
        line.setblocking(False)
        self._line, self._signed_s = line, time.monotonic()
        self._heard_s = self._signed_s


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
                watched.stir()

    def _look(self, tasks: TaskGroup) -> None:
        now_s = time.monotonic()
        for watched in list(self._all):
            if watched.stands_still():
                continue
            try:
                calm = watched.look(now_s)
            except (OSError, ValueError):  # its control group is gone, and so is it
                self.remove(watched)
                continue
            if calm and not watched.resting and not watched.leasing:
                watched.leasing = True
                tasks.start_soon(self._lease, watched)
        if not self._all:
            self._some.clear()

    async def _lease(self, watched: Watched) -> None:
        try:
            async with self._places:
                await watched.lease()
        except AtollError:
            watched.stir()  # it is asked again when it has been calm for as long again
        finally:
            watched.leasing = False
