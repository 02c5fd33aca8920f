"""Usage: sandboxes are sampled, counted and, where a budget is spent, stopped as their owners chose.

One task samples all sandboxes that run, every so often. Counting goes on from the moment up to which the database says
that it has been done, whichever server did it; see `model.usage`. A sandbox that ends is sampled once more.

What a node says is a total, so an older total that is written after a newer one would be taken for a counter that has
begun anew. Therefore one counts at a time, and what it has sampled is written only where nobody else has counted since.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

import anyio
import structlog

from atoll.control import budgets
from atoll.control.authz import Principal
from atoll.control.budgets import Room, Verdict
from atoll.control.clock import Clock
from atoll.control.clockjumps import ClockJumps
from atoll.control.store import usage as rows
from atoll.control.store.creates import month_begin
from atoll.control.store.engine import Store
from atoll.control.store.usage import Reading as Reading
from atoll.control.store.usage import UsageFilter as UsageFilter
from atoll.control.store.usage import UsageSum
from atoll.model import limits
from atoll.model.errors import InvalidArgument, LimitExceeded, Unavailable
from atoll.model.lifecycle import SleepReason, State
from atoll.model.quota import Quota, has_budget
from atoll.model.sandbox import Budget, Sandbox
from atoll.model.text import is_text
from atoll.model.usage import Prices, Sample, Usage
from atoll.telemetry import Metrics
from atoll.wire.node import NodePort

log = structlog.get_logger(__name__)

GROUPS = ("day", "template", "sandbox", "key", "tenant")
FRESH_S = 1.0
LONG_S = 1e6  # longer than any interval; what lasts for ever is no number of seconds


@dataclass(frozen=True, slots=True)
class UsageRow:
    """The usage of one group and what it costs."""

    sum: UsageSum
    money: float


class Metering:
    """Counts what is used."""

    def __init__(
        self, store: Store, node: NodePort, clock: Clock, metrics: Metrics, prices: Prices, interval_s: float
    ) -> None:
        self._store = store
        self._node = node
        self._clock = clock
        self._metrics = metrics
        self.prices = prices
        self._interval = timedelta(seconds=interval_s)
        self.jumps = ClockJumps(store, clock)
        self._awaited: datetime | None = None
        self._changed = anyio.Event()
        self._counting = anyio.Lock()
        self._counted_at: datetime | None = None
        self._renewed: set[str] = set()
        """Those whose counters are being replaced."""
        self._told_at_s = -math.inf
        """When it was last told that samples are missing."""
        self._verdict = Verdict()

    async def recover(self) -> None:
        """At start: what the node no longer has ran until nobody knows when, so it is counted no further."""
        present = self._node.sandbox_ids()
        gone = [meter.sandbox_id for meter in await self._store.read(rows.meters) if meter.sandbox_id not in present]
        if gone:
            await self._store.write(rows.drop_meters, gone)

    def note(self, owner: str, sandbox: Sandbox, tenant: Quota) -> None:
        """A sandbox runs from now on: perhaps a budget, its own or its tenant's, ends before the next look."""
        if sandbox.budget == Budget() and not has_budget(tenant):
            return
        now = self._clock.now()
        ends = [self._after(math.inf, now)]
        if sandbox.budget != Budget():
            own = budgets.room_of(sandbox.budget, sandbox.resources, Usage(), self.prices)
            ends.append(self._after(own.lasts_s(), now))
        if has_budget(tenant):
            room = self._verdict.tenants.get(owner, Room(seconds=0))  # one that was not looked at is looked at now
            room.share(sandbox.resources, self.prices)
            ends.append(self._after(room.lasts_s(), self._verdict.at or now))
        if self._awaited is None or min(ends) < self._awaited:
            self.look_again()

    def note_awake(self, budget: Budget) -> None:
        """Some sandbox that has used a part of its budget runs again, or has another budget."""
        if budget != Budget():
            self.look_again()

    def look_again(self) -> None:
        """What was known about budgets is not so any more."""
        self._changed.set()

    async def check_budget(self, sandbox: Sandbox) -> None:
        """Refuse to wake a sandbox whose budget, or its tenant's, is spent: it would be stopped again at once."""
        # From standby a sandbox wakes in milliseconds, so the database is asked only where there is a reason.
        if sandbox.state is State.STANDBY and sandbox.sleep_reason is not SleepReason.BUDGET_SPENT:
            return
        if await self._store.read(budgets.is_spent, sandbox.id, self.prices, self._clock.now()):
            raise LimitExceeded(
                "the budget of the sandbox, or of its tenant, is spent",
                code="budget_spent",
                hint="Give the sandbox a larger budget, have the tenant's raised, or wait for the next month.",
            )

    async def step(self, stop: Callable[[str], Awaitable[None]]) -> None:
        """Count everything, stop what has spent its budget, and wait for the next round."""
        self._awaited = None
        self._changed = anyio.Event()
        await self.count()
        now = self._clock.now()
        self._verdict = await self._store.read(budgets.judge_all, self.prices, now)
        for sandbox_id in self._verdict.spent:
            await stop(sandbox_id)
        self._awaited = self._after(self._verdict.lasts_s, now)
        await self._clock.wait_until(self._awaited, self._changed)

    def _after(self, duration_s: float, since: datetime) -> datetime:
        """A moment that much later, or when everything is looked at anyway."""
        return since + min(self._interval, timedelta(seconds=min(duration_s, LONG_S)))

    async def count(self) -> None:
        """Bring the record of all that runs up to now."""
        async with self._counting:
            await self._count()

    async def _count(self) -> None:
        begun_at = self._clock.now()  # who comes from here on may not be counted
        await self.jumps.settle()
        known = {meter.sandbox_id: meter.at for meter in await self._store.read(rows.meters)}
        metered = [sandbox_id for sandbox_id in known if sandbox_id not in self._renewed]
        if metered:
            samples = await self._sample(metered, limits.SAMPLE_S_MAX)
            # The moment is taken after the sample: time that passed since is counted next time, none twice.
            await self._store.write(rows.count, samples, self._clock.now(), known)
        self._counted_at = begun_at

    async def _sample(self, sandbox_ids: Sequence[str], patience_s: float) -> dict[str, Sample | None]:
        """What the node says of each; None of one that it has and cannot tell of: its time counts all the same."""
        found: dict[str, Sample | None] = {}
        why = "some cannot be read"
        with anyio.move_on_after(patience_s) as patience:
            try:
                found.update(await self._node.sample(sandbox_ids))
            except Exception as error:  # whatever the node meets, time goes on, and budgets with it
                why = repr(error)
        present = self._node.sandbox_ids()
        missed = [one for one in sandbox_ids if one in present and one not in found]
        if missed:
            self._tell_missed(missed, "it takes too long" if patience.cancelled_caught else why)
        return found | dict.fromkeys(missed)

    def _tell_missed(self, sandbox_ids: Sequence[str], why: str) -> None:
        """Once a minute: a node may be slow for a night."""
        self._metrics.usage_samples_missed.inc(len(sandbox_ids))
        now_s = time.monotonic()
        if now_s - self._told_at_s >= limits.LOOP_TOLD_S:
            self._told_at_s = now_s
            log.warning("usage_not_sampled", sandboxes=len(sandbox_ids), first=sandbox_ids[0], reason=why)

    async def last(self, sandbox_id: str) -> None:
        """Count a sandbox that is about to sleep, for the last time. It does whether this succeeds or not.

        Its meter ends when it sleeps: where that fails, it runs on with the counters that it has.
        """
        await self._store.write(rows.count_last, sandbox_id, await self.reading(sandbox_id))

    @asynccontextmanager
    async def renewing(self, sandbox_id: str) -> AsyncIterator[None]:
        """While the block puts a running sandbox into another box, whose CPU is counted from zero, none is counted."""
        self._renewed.add(sandbox_id)
        try:
            await self.last(sandbox_id)
            yield
            try:
                await self._store.write(rows.renew_meter, sandbox_id)
            except Unavailable as error:  # it is done, and a total that is smaller than before says so by itself
                log.warning("meter_not_renewed", sandbox_id=sandbox_id, error=repr(error))
        finally:
            self._renewed.discard(sandbox_id)

    async def reading(self, sandbox_id: str) -> Reading:
        """What a sandbox that is about to go has used, for whoever closes its meter.

        The moment is taken before the sample: whoever has seen more by the time that this is written has a later one.
        """
        await self.jumps.settle()
        read_at = self._clock.now()
        samples = await self._sample([sandbox_id], limits.SAMPLE_LAST_S_MAX)
        return Reading(samples.get(sandbox_id), read_at)

    async def query(self, wanted: UsageFilter) -> list[UsageRow]:
        """Sums over what has been used, up to a moment ago; one row too many says that there are more."""
        _check(wanted)
        await self._refresh()
        found = await self._store.read(rows.sums, wanted, limits.USAGE_ROWS_MAX + 1)
        return [UsageRow(one, self.prices.cost(one.usage)) for one in found]

    async def of_month(self, principal: Principal) -> Usage:
        """What a tenant has used of its budget of this month."""
        await self._refresh()
        return await self._store.read(rows.total_of_owner, principal.owner, month_begin(self._clock.now()))

    async def _refresh(self) -> None:
        """Whoever asks hears what was used up to a moment ago."""
        asked_at = self._clock.now()
        async with self._counting:  # whoever waited for another's count may need none of its own
            if self._counted_at is None or asked_at - self._counted_at > timedelta(seconds=FRESH_S):
                await self._count()


def _check(wanted: UsageFilter) -> None:
    by = wanted.by
    if by is not None and by not in GROUPS and not (by.startswith("label:") and len(by) > len("label:")):
        raise InvalidArgument(
            f"usage cannot be grouped by {by[:40]!r}",
            code="invalid_query",
            hint="Group by day, template, sandbox, key, tenant or label:<key>.",
        )
    texts: Mapping[str, str] = wanted.metadata or {}
    if not all(map(is_text, (by or "", wanted.template or "", wanted.sandbox_id or "", *texts, *texts.values()))):
        raise InvalidArgument("a filter is no text", code="invalid_query")
