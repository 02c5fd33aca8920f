"""Budgets: what is left of each, when it can be spent at the earliest, and whose is.

What has been counted says what is left; prices and resources say how fast it can go at the most. So nothing is looked
at more often than it needs to be, and no budget is overdrawn for longer than it takes to look.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection

from atoll.control.store import sandboxes as sandbox_rows
from atoll.control.store import tenants as tenant_rows
from atoll.control.store import usage as rows
from atoll.control.store.creates import month_begin
from atoll.control.store.sandboxes import Record
from atoll.model import limits
from atoll.model.lifecycle import State
from atoll.model.quota import Quota, has_budget
from atoll.model.resources import Resources
from atoll.model.sandbox import Budget, DeadlineAction, Sandbox
from atoll.model.usage import Prices, Usage

COUNTED = frozenset({State.RUNNING, State.STANDBY})
"""The states in which a sandbox uses up a budget."""
_NEARLY_S = 0.001  # what is left of a budget and cannot be waited for


@dataclass(slots=True)
class Room:
    """What was left of one budget when it was counted, and how fast it can go; None is no bound."""

    seconds: float | None = None
    money: float | None = None
    running: int = 0
    money_per_s: float = 0.0
    """What it costs at the most."""
    certain_per_s: float = 0.0
    """What it costs at the least."""

    @classmethod
    def left(cls, quota: Quota, used: Usage, prices: Prices) -> Room:
        seconds = None if quota.budget_s is None else quota.budget_s - used.wall_s
        money = None if quota.budget_money is None else quota.budget_money - prices.cost(used)
        return cls(seconds, money)

    def share(self, resources: Resources, prices: Prices) -> None:
        """One more sandbox uses it up."""
        self.running += 1
        self.money_per_s += prices.most_per_s(resources)
        self.certain_per_s += prices.wall_s

    @property
    def is_spent(self) -> bool:
        return (self.seconds is not None and self.seconds <= _NEARLY_S) or (self.money is not None and self.money <= 0)

    def lasts_s(self) -> float:
        """How long it lasts at the least. What time costs is certain; all else is known when it is counted."""
        times = [math.inf]
        if self.seconds is not None and self.running:
            times.append(self.seconds / self.running)
        if self.money is not None and self.money_per_s > 0:
            times.append(max(self.money / self.money_per_s, limits.BUDGET_LOOK_S_MIN))
        if self.money is not None and self.certain_per_s > 0:
            times.append(self.money / self.certain_per_s)
        return min(times)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What must stop because its budget is spent, and how long all other budgets last at the least."""

    spent: tuple[str, ...] = ()
    lasts_s: float = math.inf
    tenants: dict[str, Room] = field(default_factory=dict)
    """What is left to tenants that have a budget and sandboxes that use it up."""
    at: datetime | None = None


def room_of(budget: Budget, resources: Resources, used: Usage, prices: Prices) -> Room:
    """What is left to one sandbox of its own budget."""
    room = Room.left(Quota(budget_s=budget.seconds, budget_money=budget.money), used, prices)
    room.share(resources, prices)
    return room


def judge_all(connection: Connection, prices: Prices, now: datetime) -> Verdict:
    """Of all that use up a budget, their own or their tenant's."""
    running = [one for one in sandbox_rows.live(connection) if one.sandbox.state in COUNTED]
    return judge(connection, [one for one in running if not _is_stopped(one.sandbox)], prices, now)


def is_spent(connection: Connection, sandbox_id: str, prices: Prices, now: datetime) -> bool:
    """Whether a sandbox may not wake up, because its budget, or its tenant's, is spent."""
    record = sandbox_rows.by_id(connection, sandbox_id)
    return record is not None and sandbox_id in judge(connection, [record], prices, now).spent


def judge(connection: Connection, running: Sequence[Record], prices: Prices, now: datetime) -> Verdict:
    spent: set[str] = set()
    lasts_s = [math.inf]
    by_owner: dict[str, list[Sandbox]] = {}
    for record in running:
        sandbox = record.sandbox
        by_owner.setdefault(record.owner, []).append(sandbox)
        if sandbox.budget != Budget():
            used = rows.total_of_sandbox(connection, sandbox.id)
            room = room_of(sandbox.budget, sandbox.resources, used, prices)
            lasts_s.append(math.inf if room.is_spent else room.lasts_s())
            spent |= {sandbox.id} if room.is_spent else set()
    tenants: dict[str, Room] = {}
    for owner, theirs in by_owner.items():
        tenant = tenant_rows.by_id(connection, owner)
        if tenant is None or not has_budget(tenant.quota):
            continue
        room = Room.left(tenant.quota, rows.total_of_owner(connection, owner, month_begin(now)), prices)
        for sandbox in theirs:
            room.share(sandbox.resources, prices)
        tenants[owner] = room
        lasts_s.append(math.inf if room.is_spent else room.lasts_s())
        spent |= {sandbox.id for sandbox in theirs} if room.is_spent else set()
    return Verdict(tuple(sorted(spent)), min(lasts_s), tenants, now)


def _is_stopped(sandbox: Sandbox) -> bool:
    """Whether it is where a spent budget leads it already. In standby it still uses what it holds."""
    return sandbox.state is State.STANDBY and sandbox.on_budget is DeadlineAction.STANDBY
