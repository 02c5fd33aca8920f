"""Named queries about volumes."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, or_, select
from sqlalchemy.exc import IntegrityError

from atoll.control.store.moments import from_us, to_us
from atoll.control.store.schema import sandboxes, volume_snapshots, volumes
from atoll.model import limits
from atoll.model.errors import Conflict, LimitExceeded
from atoll.model.volume import Volume


def add(connection: Connection, owner: str, volume: Volume) -> None:
    """Put a new one on record; Conflict (name_taken) if another of this owner has its name."""
    mine = select(func.count()).select_from(volumes).where(volumes.c.owner == owner)
    if connection.execute(mine).scalar_one() >= limits.VOLUMES_MAX:
        raise LimitExceeded(f"there are {limits.VOLUMES_MAX} volumes already", code="too_many_volumes")
    row = {"id": volume.id, "owner": owner, "name": volume.name, "quota_bytes": volume.quota_bytes}
    try:
        connection.execute(insert(volumes), {**row, "created_us": to_us(volume.created_at)})
    except IntegrityError as error:
        raise Conflict(
            f"a volume is already named {volume.name!r}",
            code="name_taken",
            hint="Choose another name, or delete the volume that has it.",
        ) from error


def find(connection: Connection, owner: str, reference: str) -> Volume | None:
    """By id or by name."""
    row = connection.execute(
        select(volumes).where(volumes.c.owner == owner, or_(volumes.c.id == reference, volumes.c.name == reference))
    ).first()
    return _from_row(row) if row else None


def all_of(connection: Connection, owner: str) -> list[Volume]:
    rows = connection.execute(select(volumes).where(volumes.c.owner == owner).order_by(volumes.c.name))
    return [_from_row(row) for row in rows]


def owner_of(connection: Connection, volume_id: str) -> str | None:
    return connection.execute(select(volumes.c.owner).where(volumes.c.id == volume_id)).scalar_one_or_none()


def every_id(connection: Connection) -> set[str]:
    return {row.id for row in connection.execute(select(volumes.c.id))}


def users(connection: Connection, volume_id: str) -> list[str]:
    """The live sandboxes that have it mounted, also those that are paused."""
    rows = connection.execute(
        select(sandboxes.c.id, sandboxes.c.volumes).where(
            sandboxes.c.ended_us.is_(None), sandboxes.c.volumes.contains(volume_id)
        )
    )
    return [row.id for row in rows if any(mount["volume"] == volume_id for mount in json.loads(row.volumes))]


def remove(connection: Connection, volume_id: str) -> list[str]:
    """Conflict (volume_in_use) while a sandbox has it. Its snapshots go with it; these were they."""
    holders = users(connection, volume_id)
    if holders:
        raise Conflict(
            f"the volume is mounted in {len(holders)} sandboxes",
            code="volume_in_use",
            hint=f"Kill them first: {', '.join(holders[:3])}.",
        )
    ids = [row.id for row in connection.execute(_SNAPSHOTS.where(volume_snapshots.c.volume_id == volume_id))]
    connection.execute(delete(volume_snapshots).where(volume_snapshots.c.volume_id == volume_id))
    connection.execute(delete(volumes).where(volumes.c.id == volume_id))
    return ids


_SNAPSHOTS = select(volume_snapshots.c.id)


def _from_row(row: Row[Any]) -> Volume:
    return Volume(id=row.id, name=row.name, quota_bytes=row.quota_bytes, created_at=from_us(row.created_us))
