"""Walks over whole disks, which may take minutes: in threads, a few at a time, and no longer than somebody waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from atoll.model import limits

T = TypeVar("T")


class Walks:
    """The walks of one node."""

    def __init__(self) -> None:
        self._threads = anyio.CapacityLimiter(limits.DISK_WALKS_MAX)

    async def walk(self, work: Callable[[Callable[[], None]], T]) -> T:
        """What `work` finds. It gets a function that it calls in each folder, and which ends it if its caller left."""
        left = threading.Event()

        def look() -> None:
            if left.is_set():
                raise _LeftError

        found: list[T] = []
        problem: Exception | None = None
        async with self._threads, anyio.create_task_group() as tasks:
            tasks.start_soon(_tell, left)
            try:  # whoever is cancelled waits for the thread, which uses what its caller holds
                found.append(await anyio.to_thread.run_sync(work, look, limiter=anyio.CapacityLimiter(1)))
            except Exception as error:  # a task group would wrap it
                problem = error
            tasks.cancel_scope.cancel()
        if isinstance(problem, _LeftError):
            await anyio.lowlevel.checkpoint()  # which is where its caller is told that it was cancelled
        if problem is not None:
            raise problem
        return found[0]


class _LeftError(Exception):
    """Nobody waits for what a walk would find."""


async def _tell(left: threading.Event) -> None:
    """That the caller has left."""
    try:
        await anyio.sleep_forever()
    finally:
        left.set()
