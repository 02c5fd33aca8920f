"""The transaction of a create: its key, the quotas, the new record and what it opens, all or nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection, bindparam, delete, select

from atoll.control.store import diskroom, events, policies, ports, quotas, sandboxes, usage
from atoll.control.store.engine import take_time
from atoll.control.store.moments import to_us
from atoll.control.store.policies import NetworkRecord
from atoll.control.store.prepared import Prepared, adding
from atoll.control.store.sandboxes import Record
from atoll.control.store.schema import idempotency, tenants
from atoll.model import limits
from atoll.model.errors import Conflict, LimitExceeded, Unauthenticated
from atoll.model.event import Event
from atoll.model.lifecycle import EndReason
from atoll.model.port import ANY_PORT, PortAccess
from atoll.model.quota import Holding, Quota, check_create, has_budget
from atoll.model.usage import Prices


@dataclass(frozen=True, slots=True)
class Once:
    """A caller's key for one create, and a hash of what it asked for."""

    key: str
    body_hash: str


@dataclass(frozen=True, slots=True)
class Allowance:
    """What the caller's tenant and key may have, and what usage costs them."""

    tenant: Quota
    key: Quota
    prices: Prices


@dataclass(frozen=True, slots=True)
class Openings:
    """What is open from the first moment on: to callers of its ports, and to the sandbox; None: what is usual."""

    ports: PortAccess | None = None
    network: NetworkRecord | None = None


CLOSED = Openings()


def create(
    connection: Connection,
    record: Record,
    event: Event,
    allowance: Allowance,
    once: Once | None,
    openings: Openings = CLOSED,
) -> Record | None:
    """Put a new sandbox on record, within the quotas; or find the one that was made with the same key before."""
    now = record.sandbox.created_at
    if once is not None:
        earlier = _earlier(connection, record.owner, once, now)
        if earlier is not None:
            return earlier
    if _IS_REMOVED.rows(connection, {"tenant_id": record.owner}):  # since its key was looked at
        raise Unauthenticated("the API key has been revoked", code="key_revoked", hint="Ask for a new one.")
    _check_quotas(connection, record, allowance, now)
    sandboxes.add(connection, record)
    if openings.ports is not None:
        ports.add(connection, record.sandbox.id, ANY_PORT, openings.ports)
    if openings.network is not None:
        policies.add(connection, openings.network)
    events.add(connection, event)
    if once is not None:
        row = {"body_hash": once.body_hash, "sandbox_id": record.sandbox.id, "created_us": to_us(now)}
        _ADD_ONCE.change(connection, {"owner": record.owner, "key": once.key, **row})
    return None


def forget(connection: Connection, before: datetime) -> int:
    """Remove keys of creates that are older."""
    take_time(connection)
    return connection.execute(delete(idempotency).where(idempotency.c.created_us < to_us(before))).rowcount


def _earlier(connection: Connection, owner: str, once: Once, now: datetime) -> Record | None:
    known = _ONCE.rows(connection, {"once_owner": owner, "once_key": once.key})
    if not known:
        return None
    body_hash, sandbox_id, created_us = known[0]
    found = sandboxes.by_id(connection, sandbox_id)
    too_old = created_us < to_us(now - timedelta(seconds=limits.IDEMPOTENCY_KEPT_S))
    # A create that failed made nothing: whoever asks again with the same key wants it tried again.
    failed = found is None or found.sandbox.end_reason is EndReason.START_FAILED
    if too_old or failed:
        mine = (idempotency.c.owner == owner) & (idempotency.c.key == once.key)
        connection.execute(delete(idempotency).where(mine))
        return None
    if body_hash != once.body_hash:
        raise Conflict(
            "this idempotency key was used for a different create",
            code="idempotency_conflict",
            hint="Use a new key for each create, and the same one only to repeat it as it was.",
        )
    return found


def _check_quotas(connection: Connection, record: Record, allowance: Allowance, now: datetime) -> None:
    asked = record.sandbox.resources
    if allowance.tenant != Quota():
        check_create("tenant", allowance.tenant, holding_of_owner(connection, record.owner, now), asked)
    if allowance.key != Quota():
        check_create("key", allowance.key, quotas.holding_of_key(connection, record.key_id, now), asked)
    if has_budget(allowance.tenant):
        used = usage.total_of_owner(connection, record.owner, month_begin(now))
        if over_budget(allowance.tenant, used.wall_s, allowance.prices.cost(used)):
            raise LimitExceeded(
                "the tenant has spent its budget of this month",
                code="budget_spent",
                hint="Have the budget raised, or wait for the next month.",
            )


def holding_of_owner(connection: Connection, owner: str, now: datetime) -> Holding:
    """All that a tenant has: its sandboxes, and on disk also its volumes and snapshots."""
    holding = quotas.holding_of_owner(connection, owner, now)
    return replace(holding, disk_bytes=holding.disk_bytes + diskroom.kept_bytes(connection, owner))


def over_budget(quota: Quota, wall_s: float, money: float) -> bool:
    return (quota.budget_s is not None and wall_s >= quota.budget_s) or (
        quota.budget_money is not None and money >= quota.budget_money
    )


def month_begin(now: datetime) -> datetime:
    return now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


_IS_REMOVED = Prepared(
    select(tenants.c.id).where(tenants.c.id == bindparam("tenant_id"), tenants.c.removed_us.is_not(None))
)
_ADD_ONCE = adding(idempotency)
_ONCE = Prepared(
    select(idempotency.c.body_hash, idempotency.c.sandbox_id, idempotency.c.created_us).where(
        idempotency.c.owner == bindparam("once_owner"), idempotency.c.key == bindparam("once_key")
    )
)
