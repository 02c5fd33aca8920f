"""Named queries about quotas: what a tenant or a key has now, and quotas as the database holds them.

The holding is read in the transaction that adds a sandbox. Writers are one at a time, so nobody adds another between.
"""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Connection, and_, func, select

from atoll.control.store.moments import to_us
from atoll.control.store.schema import sandboxes
from atoll.model.quota import Holding, Quota

_MINUTE = timedelta(minutes=1)


def holding_of_owner(connection: Connection, owner: str, now: datetime) -> Holding:
    return _holding(connection, sandboxes.c.owner == owner, now)


def holding_of_key(connection: Connection, key_id: str, now: datetime) -> Holding:
    return _holding(connection, sandboxes.c.key_id == key_id, now)


def quota_write(quota: Quota) -> str:
    return json.dumps({name: value for name, value in dataclasses.asdict(quota).items() if value is not None})


def quota_read(text: str) -> Quota:
    return Quota(**json.loads(text))


def _holding(connection: Connection, whose: ColumnElement[bool], now: datetime) -> Holding:
    column = sandboxes.c
    live = select(
        func.count(),
        func.coalesce(func.sum(column.cpu), 0.0),
        func.coalesce(func.sum(column.memory_bytes), 0),
        func.coalesce(func.sum(column.disk_bytes), 0),
    ).where(and_(whose, column.ended_us.is_(None)))
    number, cpu, memory_bytes, disk_bytes = connection.execute(live).one()
    recent = select(func.count(), func.min(column.created_us)).where(
        # Those that lie ahead were made before the clock was set back; nobody waits for it to catch up.
        and_(whose, column.created_us > to_us(now - _MINUTE), column.created_us <= to_us(now))
    )
    creates, oldest_us = connection.execute(recent).one()
    age_s = 0.0 if oldest_us is None else (to_us(now) - oldest_us) / 1e6
    return Holding(number, float(cpu), int(memory_bytes), int(disk_bytes), creates, age_s)
