"""One at a time: what changes a sandbox as a whole (pause, resume, snapshot, rollback) waits for its turn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from atoll.model import limits
from atoll.model.errors import Conflict


class Exclusive:
    """A lock for each sandbox that somebody holds or waits for."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[anyio.Lock, int]] = {}

    @asynccontextmanager
    async def turn(self, sandbox_id: str) -> AsyncIterator[None]:
        """Nobody else has a turn at this sandbox meanwhile; Conflict (busy) after waiting for too long."""
        lock, waiting = self._locks.get(sandbox_id, (anyio.Lock(), 0))
        self._locks[sandbox_id] = (lock, waiting + 1)
        try:
            with anyio.move_on_after(limits.STATE_WAIT_S_MAX) as patience:
                await lock.acquire()
            if patience.cancelled_caught:
                raise Conflict("the sandbox is being paused, resumed or copied", code="busy", hint="Try again.")
            try:
                yield
            finally:
                lock.release()
        finally:
            lock, waiting = self._locks[sandbox_id]
            if waiting == 1:
                del self._locks[sandbox_id]
            else:
                self._locks[sandbox_id] = (lock, waiting - 1)
