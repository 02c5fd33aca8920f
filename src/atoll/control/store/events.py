"""Named queries about the audit log. Entries are added, read and, when they are old, forgotten; never changed.

Events about sandboxes are added in the transaction that changes the sandbox, together with the deliveries that tenants
have asked for: one is on record exactly if the others are.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, bindparam, delete, func, insert, or_, select

from atoll.control.store.engine import take_time
from atoll.control.store.moments import from_us, to_us
from atoll.control.store.prepared import Prepared, adding
from atoll.control.store.schema import events, webhook_deliveries, webhooks
from atoll.model import ids
from atoll.model.event import Event, matches


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events are wanted; what is None or empty does not filter. Without an owner, those of all tenants."""

    owner: str | None
    actions: tuple[str, ...] = ()
    target: str | None = None
    actor: str | None = None
    result: str | None = None
    since: datetime | None = None
    until: datetime | None = None


def add(connection: Connection, event: Event) -> None:
    """Write an event, and a delivery for each webhook that wants it."""
    number = _ADD.rows(connection, _to_row(event))[0][0]
    if not event.action.startswith("sandbox."):
        return
    for hook_id, actions in _HOOKS.rows(connection, {"hook_owner": event.owner}):
        if matches(event.action, tuple(actions.split())):
            at_us = to_us(event.at)
            delivery = {
                "id": ids.mint(ids.DELIVERY, at_us // 1000, secrets.token_bytes(16)),
                "webhook_id": hook_id,
                "event_number": number,
                "state": "pending",
                "attempts": 0,
                "due_us": at_us,
                "status": None,
                "error": "",
                "updated_us": at_us,
            }
            connection.execute(_ADD_DELIVERY, delivery)


def add_many(connection: Connection, entries: Iterable[Event]) -> None:
    """Write events that no webhook can want."""
    rows = [_to_row(event) for event in entries]
    if rows:
        connection.execute(insert(events), rows)


def after(connection: Connection, wanted: EventFilter, number: int, items_max: int) -> list[Event]:
    """The events that follow a place in the log, oldest first."""
    query = _query(wanted).where(events.c.number > number).order_by(events.c.number).limit(items_max)
    return [_from_row(row) for row in connection.execute(query)]


def latest(connection: Connection, wanted: EventFilter, items_max: int) -> list[Event]:
    """The newest events, oldest of them first."""
    query = _query(wanted).order_by(events.c.number.desc()).limit(items_max)
    return [_from_row(row) for row in connection.execute(query)][::-1]


def by_number(connection: Connection, number: int) -> Event | None:
    row = connection.execute(select(events).where(events.c.number == number)).one_or_none()
    return _from_row(row) if row else None


def last_number(connection: Connection) -> int:
    return int(connection.execute(select(func.coalesce(func.max(events.c.number), 0))).scalar_one())


def first_number(connection: Connection) -> int:
    return int(connection.execute(select(func.coalesce(func.min(events.c.number), 0))).scalar_one())


def forget(connection: Connection, before: datetime) -> int:
    """Remove what is older; says how many."""
    take_time(connection)
    return connection.execute(delete(events).where(events.c.at_us < to_us(before))).rowcount


def _query(wanted: EventFilter) -> Select[Any]:
    query = select(events)
    for column, value in (
        (events.c.owner, wanted.owner),
        (events.c.target, wanted.target),
        (events.c.actor, wanted.actor),
        (events.c.result, wanted.result),
    ):
        if value is not None:
            query = query.where(column == value)
    if wanted.actions:
        query = query.where(_any_action(wanted.actions))
    if wanted.since is not None:
        query = query.where(events.c.at_us >= to_us(wanted.since))
    if wanted.until is not None:
        query = query.where(events.c.at_us < to_us(wanted.until))
    return query


def _any_action(patterns: tuple[str, ...]) -> ColumnElement[bool]:
    return or_(
        *(
            events.c.action.startswith(pattern[:-1], autoescape=True)
            if pattern.endswith("*")
            else events.c.action == pattern
            for pattern in patterns
        )
    )


def _to_row(event: Event) -> dict[str, Any]:
    return {
        "at_us": to_us(event.at),
        "owner": event.owner,
        "actor": event.actor,
        "action": event.action,
        "target": event.target,
        "result": event.result,
        "source": event.source,
        "request_id": event.request_id,
        "detail": json.dumps(dict(event.detail)),
    }


def _from_row(row: Row[Any]) -> Event:
    return Event(
        at=from_us(row.at_us),
        owner=row.owner,
        actor=row.actor,
        action=row.action,
        target=row.target,
        result=row.result,
        source=row.source,
        request_id=row.request_id,
        detail=json.loads(row.detail),
        number=row.number,
    )


_ADD = adding(events, events.c.number)
_ADD_DELIVERY = insert(webhook_deliveries)
_HOOKS = Prepared(
    select(webhooks.c.id, webhooks.c.actions).where(
        webhooks.c.owner == bindparam("hook_owner"), webhooks.c.removed_us.is_(None), webhooks.c.enabled == 1
    )
)
