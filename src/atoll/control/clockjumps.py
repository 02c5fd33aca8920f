"""A clock that was set: deadlines move along, so that nobody lives shorter or longer for it, and no time is charged.

Deadlines and meters are moments of the machine's clock, because they outlive the server. When that clock is set by more
than a little while the server runs, the moments that lie ahead are moved by as much. Meters are moved forward only:
behind a clock that was set back they wait until it has caught up, because the same time must not be counted twice.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import anyio
import structlog
from sqlalchemy import Connection

from atoll.control.clock import Clock
from atoll.control.store import sandboxes, usage
from atoll.control.store.engine import Store
from atoll.model import limits

log = structlog.get_logger(__name__)


class ClockJumps:
    """Asked by whoever is about to decide something by the time."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._settled = timedelta()
        self._turn = anyio.Lock()
        self.moved: list[Callable[[timedelta], None]] = []
        """Who keeps deadlines in memory."""

    async def settle(self) -> None:
        """Move what has to be moved, if the clock was set since the last time; it costs nothing if it was not.

        Also for whoever is about to set a moment: one that the new clock has set must not be moved along.
        """
        if not self._unsettled():
            return
        async with self._turn:
            jumped = self._unsettled()
            if not jumped:
                return
            log.warning("clock_was_set", seconds=round(jumped.total_seconds(), 3))
            await self._store.write(_shift, jumped)
            self._settled += jumped
            for tell in self.moved:
                tell(jumped)

    def _unsettled(self) -> timedelta:
        """By how much the clock was set since the last time; nothing, if it was only put right."""
        jumped = self._clock.jumped() - self._settled
        return jumped if abs(jumped.total_seconds()) >= limits.CLOCK_JUMP_S_MIN else timedelta()


def _shift(connection: Connection, jumped: timedelta) -> None:
    sandboxes.shift_deadlines(connection, jumped)
    if jumped > timedelta():
        usage.shift_meters(connection, jumped)
