"""The clock that control decides by, as an argument: the machine's own in a server, a virtual one in tests."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

import anyio

from atoll.model import limits


class Clock(Protocol):
    """What time it is, and a way to wait for a moment."""

    def now(self) -> datetime:
        """The time, in UTC."""
        ...

    def jumped(self) -> timedelta:
        """By how much it has been set since it began, beyond the time that has passed."""
        ...

    async def wait_until(self, moment: datetime | None, changed: anyio.Event) -> None:
        """Return when the moment has come, `changed` is set or the clock was, whichever is first; None never comes."""
        ...


class SystemClock:
    """The clock of the machine. How much time has passed is asked of another one, which nobody can set."""

    def __init__(self) -> None:
        self._begin = self.now() - self._passed()

    def jumped(self) -> timedelta:
        return self.now() - self._passed() - self._begin

    def _passed(self) -> timedelta:
        return timedelta(seconds=time.clock_gettime(time.CLOCK_BOOTTIME))  # goes on while the machine sleeps

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def wait_until(self, moment: datetime | None, changed: anyio.Event) -> None:
        begin = self.jumped()
        while not changed.is_set() and abs((self.jumped() - begin).total_seconds()) < limits.CLOCK_JUMP_S_MIN:
            # The machine's clock may jump, and a timer of the event loop does not: look again every so often.
            left_s = limits.CLOCK_LOOK_S if moment is None else (moment - self.now()).total_seconds()
            if left_s <= 0:
                return
            with anyio.move_on_after(min(left_s, limits.CLOCK_LOOK_S)):
                await changed.wait()
