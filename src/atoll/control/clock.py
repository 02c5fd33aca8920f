"""The clock that control decides by, as an argument: the machine's own in a server, a virtual one in tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol

import anyio

from atoll.model import limits


class Clock(Protocol):
    """What time it is, and a way to wait for a moment."""

    def now(self) -> datetime:
        """The time, in UTC."""
        ...

    async def wait_until(self, moment: datetime | None, changed: anyio.Event) -> None:
        """Return when the moment has come or `changed` is set, whichever is first; None never comes."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def wait_until(self, moment: datetime | None, changed: anyio.Event) -> None:
        while not changed.is_set():
            # The machine's clock may jump, and a timer of the event loop does not: look again every so often.
            left_s = limits.CLOCK_LOOK_S if moment is None else (moment - self.now()).total_seconds()
            if left_s <= 0:
                return
            with anyio.move_on_after(min(left_s, limits.CLOCK_LOOK_S)):
                await changed.wait()
