"""When a sandbox was last at work: a call, a stream, a connection to one of its ports, output of a program, or bytes on
their way to the outside or back.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from atoll.model import limits


class Activity:
    """The use of one sandbox.

    Of what is not counted here, `busy` says whether it goes on, and `moved_at_s` when it last did. What programs print
    is seen from outside only by those who follow them: the inside is asked, and `printed` told.
    """

    def __init__(self, busy: Callable[[], bool], moved_at_s: Callable[[], float] = lambda: 0.0) -> None:
        self._busy = busy
        self._moved_at_s = moved_at_s
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

    def printed(self, age_s: object) -> None:
        """Some program printed something so long ago, as the inside says; it may say anything."""
        if isinstance(age_s, (int, float)) and not isinstance(age_s, bool) and age_s >= 0:
            self._last_s = max(self._last_s, time.monotonic() - age_s)

    def idle_s(self) -> float:
        """For how long nothing has gone on; 0 while something does."""
        if self._open or self._busy():
            self.touch()
        self._last_s = max(self._last_s, self._moved_at_s())
        return time.monotonic() - self._last_s
