"""When a sandbox was last used: by a call, a stream that is open, or a connection to one of its ports."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from atoll.model import limits


class Activity:
    """The use of one sandbox. `busy` says whether something goes on that is not counted here."""

    def __init__(self, busy: Callable[[], bool]) -> None:
        self._busy = busy
        self._open = 0
        self._calls = 0
        self._answered = asyncio.Event()
        self._last_s = time.monotonic()

    @contextmanager
    def calling(self) -> Iterator[None]:
        """A call that is answered soon, unlike a stream."""
        self._calls += 1
        try:
            with self.going_on():
                yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._answered.set()

    async def wait_answered(self) -> None:
        """Until no call is waiting for its answer, for a bounded time: one that is stuck stops nobody."""
        if self._calls:
            self._answered.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limits.STANDBY_CALLS_S_MAX):
                    await self._answered.wait()

    @contextmanager
    def going_on(self) -> Iterator[None]:
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            self.touch()

    def touch(self) -> None:
        self._last_s = time.monotonic()

    def idle_s(self) -> float:
        """For how long nothing has gone on; 0 while something does."""
        if self._open or self._busy():
            self.touch()
        return time.monotonic() - self._last_s
