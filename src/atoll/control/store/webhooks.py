"""Named queries about webhooks and their deliveries."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from atoll.control.store.engine import take_time
from atoll.control.store.moments import from_us, to_us
from atoll.control.store.schema import webhook_deliveries, webhooks

NATIVE = "atoll"


class DeliveryState(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Webhook:
    """An address that wants to hear of a tenant's events, and the secret that signs what it gets.

    The secret is sealed before it comes here and opened after it has left.
    """

    id: str
    owner: str
    url: str
    secret: str
    actions: tuple[str, ...]
    created_at: datetime
    name: str = ""
    enabled: bool = True
    form: str = NATIVE
    """In whose words it is told, and by whose signature."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event on its way to one webhook."""

    id: str
    webhook_id: str
    event_number: int
    state: DeliveryState
    attempts: int
    due_at: datetime
    status: int | None
    error: str
    updated_at: datetime


def add(connection: Connection, hook: Webhook) -> None:
    connection.execute(
        insert(webhooks),
        {
            "id": hook.id,
            "owner": hook.owner,
            "url": hook.url,
            "secret": hook.secret,
            "actions": " ".join(hook.actions),
            "created_us": to_us(hook.created_at),
            "removed_us": None,
            "name": hook.name,
            "enabled": int(hook.enabled),
            "form": hook.form,
        },
    )


def change(connection: Connection, hook: Webhook) -> bool:
    """Write what can be changed of a webhook; says whether it was still there."""
    statement = update(webhooks).where(webhooks.c.id == hook.id, webhooks.c.removed_us.is_(None))
    values = {"url": hook.url, "actions": " ".join(hook.actions), "secret": hook.secret}
    changed = statement.values(**values, name=hook.name, enabled=int(hook.enabled))
    return connection.execute(changed).rowcount == 1


def of_owner(connection: Connection, owner: str) -> list[Webhook]:
    wanted = select(webhooks).where(webhooks.c.owner == owner, webhooks.c.removed_us.is_(None))
    return [_hook(row) for row in connection.execute(wanted.order_by(webhooks.c.id))]


def everything(connection: Connection) -> list[Webhook]:
    """The webhooks of all tenants, to be sealed anew."""
    return [_hook(row) for row in connection.execute(select(webhooks).where(webhooks.c.removed_us.is_(None)))]


def reseal(connection: Connection, before: Webhook, sealed: str) -> bool:
    """Replace a secret if it is still the same one."""
    statement = update(webhooks).where(webhooks.c.id == before.id, webhooks.c.secret == before.secret)
    return connection.execute(statement, {"secret": sealed}).rowcount == 1


def by_id(connection: Connection, hook_id: str) -> Webhook | None:
    """A webhook that has not been removed."""
    wanted = select(webhooks).where(webhooks.c.id == hook_id, webhooks.c.removed_us.is_(None))
    row = connection.execute(wanted).one_or_none()
    return _hook(row) if row else None


def remove(connection: Connection, owner: str, hook_id: str, now: datetime) -> bool:
    """Remove a webhook; what has not been delivered to it is forgotten."""
    statement = (
        update(webhooks)
        .where(webhooks.c.owner == owner, webhooks.c.id == hook_id, webhooks.c.removed_us.is_(None))
        .values(removed_us=to_us(now), secret="")
    )
    removed = connection.execute(statement).rowcount == 1
    if removed:
        connection.execute(
            delete(webhook_deliveries).where(
                webhook_deliveries.c.webhook_id == hook_id,
                webhook_deliveries.c.state == DeliveryState.PENDING.value,
            )
        )
    return removed


def due(connection: Connection, now: datetime, items_max: int, busy: Collection[str] = ()) -> list[Delivery]:
    """What should be on its way now, oldest first, but for webhooks that are busy."""
    column = webhook_deliveries.c
    wanted = (
        select(webhook_deliveries)
        .where(column.state == DeliveryState.PENDING.value, column.due_us <= to_us(now))
        .where(column.webhook_id.not_in(busy))
        .order_by(column.due_us, column.id)
        .limit(items_max)
    )
    return [_delivery(row) for row in connection.execute(wanted)]


def next_due(connection: Connection, busy: Collection[str] = ()) -> datetime | None:
    column = webhook_deliveries.c
    wanted = select(func.min(column.due_us)).where(
        column.state == DeliveryState.PENDING.value, column.webhook_id.not_in(busy)
    )
    value = connection.execute(wanted).scalar_one_or_none()
    return None if value is None else from_us(value)


def any_listens(connection: Connection) -> bool:
    """Whether there is a webhook that may hear of what happens next."""
    listening = select(webhooks.c.id).where(webhooks.c.removed_us.is_(None), webhooks.c.enabled == 1).limit(1)
    return connection.execute(listening).one_or_none() is not None


def claim(connection: Connection, delivery: Delivery, until: datetime) -> bool:
    """Take a delivery for ourselves until some moment; says whether nobody else was faster."""
    column = webhook_deliveries.c
    statement = (
        update(webhook_deliveries)
        .where(
            column.id == delivery.id,
            column.state == DeliveryState.PENDING.value,
            column.attempts == delivery.attempts,
        )
        .values(attempts=delivery.attempts + 1, due_us=to_us(until))
    )
    return connection.execute(statement).rowcount == 1


def settle(connection: Connection, delivery: Delivery) -> None:
    """Write how an attempt went."""
    connection.execute(
        update(webhook_deliveries)
        .where(webhook_deliveries.c.id == delivery.id)
        .values(
            state=delivery.state.value,
            due_us=to_us(delivery.due_at),
            status=delivery.status,
            error=delivery.error,
            updated_us=to_us(delivery.updated_at),
        )
    )


def drop(connection: Connection, delivery: Delivery) -> None:
    """Forget one that its webhook does not want."""
    connection.execute(delete(webhook_deliveries).where(webhook_deliveries.c.id == delivery.id))


def deliveries(connection: Connection, hook_id: str, items_max: int) -> list[Delivery]:
    """The newest deliveries of a webhook, newest first."""
    column = webhook_deliveries.c
    wanted = select(webhook_deliveries).where(column.webhook_id == hook_id).order_by(column.event_number.desc())
    return [_delivery(row) for row in connection.execute(wanted.limit(items_max))]


def forget(connection: Connection, before: datetime) -> int:
    """Remove deliveries that were done with before some moment."""
    take_time(connection)
    column = webhook_deliveries.c
    statement = delete(webhook_deliveries).where(
        column.state != DeliveryState.PENDING.value, column.updated_us < to_us(before)
    )
    return connection.execute(statement).rowcount


def _hook(row: Row[Any]) -> Webhook:
    return Webhook(
        id=row.id,
        owner=row.owner,
        url=row.url,
        secret=row.secret,
        actions=tuple(row.actions.split()),
        created_at=from_us(row.created_us),
        name=row.name,
        enabled=bool(row.enabled),
        form=row.form,
    )


def _delivery(row: Row[Any]) -> Delivery:
    return Delivery(
        id=row.id,
        webhook_id=row.webhook_id,
        event_number=row.event_number,
        state=DeliveryState(row.state),
        attempts=row.attempts,
        due_at=from_us(row.due_us),
        status=row.status,
        error=row.error,
        updated_at=from_us(row.updated_us),
    )
