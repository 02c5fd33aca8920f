"""Usage: sandboxes are sampled, counted and, where a budget is spent, stopped as their owners chose.

One task samples all sandboxes that run, every so often. Counting goes on from the moment up to which the database says
that it has been done, whichever server did it; see `model.usage`. A sandbox that ends is sampled once more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import anyio
import structlog
from sqlalchemy import Connection

from atoll.control.authz import Principal
from atoll.control.clock import Clock
from atoll.control.clockjumps import ClockJumps
from atoll.control.store import sandboxes as sandbox_rows
from atoll.control.store import tenants as tenant_rows
from atoll.control.store import usage as rows
from atoll.control.store.creates import month_begin, over_budget
from atoll.control.store.engine import Store
from atoll.control.store.sandboxes import Record
from atoll.control.store.usage import Reading as Reading
from atoll.control.store.usage import UsageFilter as UsageFilter
from atoll.control.store.usage import UsageSum
from atoll.model import limits
from atoll.model.errors import InvalidArgument, LimitExceeded
from atoll.model.lifecycle import SleepReason, State
from atoll.model.quota import Quota
from atoll.model.sandbox import Budget, DeadlineAction, Sandbox
from atoll.model.text import is_text
from atoll.model.usage import Prices, Sample, Usage
from atoll.wire.node import NodePort

log = structlog.get_logger(__name__)

GROUPS = ("day", "template", "sandbox", "key")
COUNTED = frozenset({State.RUNNING, State.STANDBY})
"""The states in which a sandbox uses up a budget."""
FRESH_S = 1.0
_NEARLY_S = 0.001  # what is left of a budget and cannot be waited for


@dataclass(frozen=True, slots=True)
class UsageRow:
    """The usage of one group and what it costs."""

    sum: UsageSum
    money: float


@dataclass(frozen=True, slots=True)
class Spent:
    """What must stop because its budget is spent, and when to look again at the latest."""

    sandbox_ids: tuple[str, ...]
    look_at: datetime | None


class Metering:
    """Counts what is used."""

    def __init__(self, store: Store, node: NodePort, clock: Clock, prices: Prices, interval_s: float) -> None:
        self._store = store
        self._node = node
        self._clock = clock
        self.prices = prices
        self._interval = timedelta(seconds=interval_s)
        self.jumps = ClockJumps(store, clock)
        self._awaited: datetime | None = None
        self._changed = anyio.Event()
        self._counted_at: datetime | None = None

    async def recover(self) -> None:
        """At start: what the node no longer has ran until nobody knows when, so it is counted no further."""
        present = self._node.sandbox_ids()
        gone = [meter.sandbox_id for meter in await self._store.read(rows.meters) if meter.sandbox_id not in present]
        if gone:
            await self._store.write(rows.drop_meters, gone)

    def note(self, budget: Budget) -> None:
        """Some sandbox with this budget runs from now on."""
        if budget.seconds is None:
            return
        spent_at = self._clock.now() + timedelta(seconds=budget.seconds)
        if self._awaited is None or spent_at < self._awaited:
            self._changed.set()

    def note_awake(self, budget: Budget) -> None:
        """Some sandbox that has used a part of its budget runs again, or has another budget."""
        if budget != Budget():
            self._changed.set()

    async def check_budget(self, sandbox: Sandbox) -> None:
        """Refuse to wake a sandbox whose budget, or its tenant's, is spent: it would be stopped again at once."""
        # From standby a sandbox wakes in milliseconds, so the database is asked only where there is a reason.
        if sandbox.state is State.STANDBY and sandbox.sleep_reason is not SleepReason.BUDGET_SPENT:
            return
        if await self._store.read(_is_spent, sandbox.id, self.prices, self._clock.now()):
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
        spent = await self._store.read(_spent, self.prices, now)
        for sandbox_id in spent.sandbox_ids:
            await stop(sandbox_id)
        self._awaited = min(now + self._interval, spent.look_at or now + self._interval)
        await self._clock.wait_until(self._awaited, self._changed)

    async def count(self) -> None:
        """Bring the record of all that runs up to now."""
        metered = [meter.sandbox_id for meter in await self._store.read(rows.meters)]
        await self.jumps.settle()
        if metered:
            with anyio.move_on_after(limits.SAMPLE_S_MAX):
                samples = await self._node.sample(metered)
                # The moment is taken after the sample: time that passed since is counted next time, none twice.
                await self._store.write(rows.count, dict(samples), self._clock.now())
        self._counted_at = self._clock.now()

    async def last(self, sandbox_id: str) -> None:
        """Count a sandbox that is about to sleep, for the last time. It does whether this succeeds or not."""
        await self._store.write(rows.close_meter, sandbox_id, await self.reading(sandbox_id))

    async def reading(self, sandbox_id: str) -> Reading:
        """What a sandbox that is about to go has used, for whoever closes its meter."""
        sample: Sample | None = None
        await self.jumps.settle()
        with anyio.move_on_after(limits.SAMPLE_LAST_S_MAX):
            try:
                sample = (await self._node.sample([sandbox_id])).get(sandbox_id)
            except Exception as error:
                log.warning("last_sample_failed", sandbox_id=sandbox_id, error=repr(error))
        return Reading(sample, self._clock.now())

    async def query(self, wanted: UsageFilter) -> list[UsageRow]:
        """Sums over what has been used, up to a moment ago."""
        _check(wanted)
        now = self._clock.now()
        if self._counted_at is None or now - self._counted_at > timedelta(seconds=FRESH_S):
            await self.count()
        found = await self._store.read(rows.sums, wanted, limits.USAGE_ROWS_MAX)
        return [UsageRow(one, self.prices.cost(one.usage)) for one in found]

    async def of_month(self, principal: Principal) -> Usage:
        """What a tenant has used of its budget of this month."""
        return await self._store.read(rows.total_of_owner, principal.owner, month_begin(self._clock.now()))


def _is_spent(connection: Connection, sandbox_id: str, prices: Prices, now: datetime) -> bool:
    record = sandbox_rows.by_id(connection, sandbox_id)
    return record is not None and sandbox_id in _judged(connection, [record], prices, now).sandbox_ids


def _spent(connection: Connection, prices: Prices, now: datetime) -> Spent:
    """Sandboxes that run on a spent budget, their own or their tenant's; and when the next one may be."""
    running = [one for one in sandbox_rows.live(connection) if one.sandbox.state in COUNTED]
    return _judged(connection, [one for one in running if not _stopped(one.sandbox)], prices, now)


def _stopped(sandbox: Sandbox) -> bool:
    """Whether it is where a spent budget leads it already. In standby it still uses what it holds."""
    return sandbox.state is State.STANDBY and sandbox.on_budget is DeadlineAction.STANDBY


def _judged(connection: Connection, running: Sequence[Record], prices: Prices, now: datetime) -> Spent:
    over: set[str] = set()
    looks: list[datetime] = []
    by_owner: dict[str, list[str]] = {}
    for record in running:
        by_owner.setdefault(record.owner, []).append(record.sandbox.id)
        budget = record.sandbox.budget
        if budget != Budget():
            used = rows.total_of_sandbox(connection, record.sandbox.id)
            own = Quota(budget_s=budget.seconds, budget_money=budget.money)
            _judge(own, used, prices, [record.sandbox.id], now, over, looks)
    for owner, sandbox_ids in by_owner.items():
        tenant = tenant_rows.by_id(connection, owner)
        if tenant is not None and (tenant.quota.budget_s is not None or tenant.quota.budget_money is not None):
            used = rows.total_of_owner(connection, owner, month_begin(now))
            _judge(tenant.quota, used, prices, sandbox_ids, now, over, looks)
    return Spent(tuple(sorted(over)), min(looks, default=None))


def _judge(
    quota: Quota,
    used: Usage,
    prices: Prices,
    sandbox_ids: list[str],
    now: datetime,
    over: set[str],
    looks: list[datetime],
) -> None:
    if over_budget(quota, used.wall_s + _NEARLY_S, prices.cost(used)):
        over.update(sandbox_ids)
    elif quota.budget_s is not None:
        looks.append(now + timedelta(seconds=(quota.budget_s - used.wall_s) / len(sandbox_ids)))


def _check(wanted: UsageFilter) -> None:
    by = wanted.by
    if by is not None and by not in GROUPS and not (by.startswith("label:") and len(by) > len("label:")):
        raise InvalidArgument(
            f"usage cannot be grouped by {by[:40]!r}",
            code="invalid_query",
            hint="Group by day, template, sandbox, key or label:<key>.",
        )
    texts: Mapping[str, str] = wanted.metadata or {}
    if not all(map(is_text, (by or "", wanted.template or "", wanted.sandbox_id or "", *texts, *texts.values()))):
        raise InvalidArgument("a filter is no text", code="invalid_query")
