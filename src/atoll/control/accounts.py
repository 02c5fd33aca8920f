"""The side of control that is about callers rather than sandboxes: tenants, usage, audit, webhooks, rates."""

from __future__ import annotations

import functools
from contextlib import suppress
from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup

from atoll.control.clock import Clock
from atoll.control.eventfile import EventFile
from atoll.control.events import Events
from atoll.control.housekeeping import Housekeeping, note_key_use
from atoll.control.keys import Keys
from atoll.control.loops import forever
from atoll.control.options import ControlOptions
from atoll.control.posting import Poster
from atoll.control.rates import Rates
from atoll.control.refusallog import RefusalLog
from atoll.control.store.engine import Store
from atoll.control.tenants import Tenants
from atoll.control.underway import Underway
from atoll.control.usage import Metering
from atoll.control.vault import Vault
from atoll.control.webhooks import Webhooks
from atoll.model import limits
from atoll.model.errors import Unavailable
from atoll.telemetry import Metrics
from atoll.wire.node import NodePort


@dataclass(frozen=True, slots=True)
class Accounts:
    """One door to each; the edge checks the caller's scope before it opens one."""

    keys: Keys
    tenants: Tenants
    usage: Metering
    events: Events
    webhooks: Webhooks
    rates: Rates
    refusals: RefusalLog
    underway: Underway
    """The requests that will be in the audit log."""
    housekeeping: Housekeeping
    options: ControlOptions

    @classmethod
    def make(
        cls, store: Store, node: NodePort, clock: Clock, metrics: Metrics, options: ControlOptions, vault: Vault
    ) -> Accounts:
        events = Events(store, clock, metrics)
        keys = Keys(store, clock, events)
        refusals = RefusalLog(events)
        keys.on_refused = refusals.note
        tenants = Tenants(store, clock, events, keys)
        usage = Metering(store, node, clock, metrics, options.prices, options.usage_interval_s)
        tenants.on_quota = usage.look_again
        return cls(
            keys=keys,
            tenants=tenants,
            usage=usage,
            events=events,
            webhooks=Webhooks(
                store, clock, events, metrics, vault, Poster(private_allowed=options.webhook_private).send
            ),
            rates=Rates(),
            refusals=refusals,
            underway=Underway(),
            housekeeping=Housekeeping(store, clock, events, keys, options),
            options=options,
        )

    def begin(self, tasks: TaskGroup) -> None:
        """Start the loops; they run as long as the group does."""
        tasks.start_soon(forever, self.events.flush_step)
        tasks.start_soon(forever, self.refusals.step)
        tasks.start_soon(forever, self.underway.step)
        tasks.start_soon(self.webhooks.run)
        tasks.start_soon(forever, self.housekeeping.step)
        tasks.start_soon(forever, functools.partial(note_key_use, self.keys))
        tasks.start_soon(forever, self.keys.ends.step)
        if self.options.events_file is not None:
            tasks.start_soon(forever, EventFile(self.options.events_file, self.events).step)

    async def close(self) -> None:
        """Write what has not been written, for a bounded time."""
        self.refusals.close()
        with anyio.move_on_after(limits.KILL_WAIT_S_MAX, shield=True), suppress(Unavailable):
            await self.keys.flush_used()
            await self.events.flush()
