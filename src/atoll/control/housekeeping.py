"""What is forgotten when it is old, once an hour: events, deliveries, API keys and keys of creates; and late writes."""

from __future__ import annotations

from datetime import timedelta

import anyio

from atoll.control.clock import Clock
from atoll.control.events import Events
from atoll.control.keys import Keys
from atoll.control.options import ControlOptions
from atoll.control.store import creates, webhooks
from atoll.control.store.engine import Store
from atoll.model import limits


class Housekeeping:
    """The hourly round."""

    def __init__(self, store: Store, clock: Clock, events: Events, keys: Keys, options: ControlOptions) -> None:
        self._store = store
        self._clock = clock
        self._events = events
        self._keys = keys
        self._options = options

    async def step(self) -> None:
        """One round, then the pause."""
        await self.tidy()
        pause = timedelta(seconds=limits.HOUSEKEEPING_S)
        await self._clock.wait_until(self._clock.now() + pause, anyio.Event())

    async def tidy(self) -> None:
        now = self._clock.now()
        await self._store.write(creates.forget, now - timedelta(seconds=limits.IDEMPOTENCY_KEPT_S))
        await self._store.write(webhooks.forget, now - timedelta(seconds=limits.DELIVERIES_KEPT_S))
        await self._keys.forget_ended()
        if self._options.events_keep_days:
            await self._events.forget(self._options.events_keep_days)


async def note_key_use(keys: Keys) -> None:
    """Write when keys were last used, every few seconds: a step of a loop."""
    await anyio.sleep(limits.KEY_USE_FLUSH_S)
    await keys.flush_used()
