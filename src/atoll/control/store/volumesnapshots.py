"""Named queries about snapshots of volumes."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, or_, select
from sqlalchemy.exc import IntegrityError

from atoll.control.store.moments import from_us, to_us
from atoll.control.store.schema import volume_snapshots
from atoll.model import limits
from atoll.model.errors import Conflict, LimitExceeded
from atoll.model.volume import VolumeSnapshot


def add(connection: Connection, snapshot: VolumeSnapshot) -> None:
    """Put a new one on record; Conflict (name_taken) if another of its volume has its name."""
    column = volume_snapshots.c
    mine = select(func.count()).select_from(volume_snapshots).where(column.volume_id == snapshot.volume_id)
    if connection.execute(mine).scalar_one() >= limits.VOLUME_SNAPSHOTS_MAX:
        raise LimitExceeded(
            f"the volume has {limits.VOLUME_SNAPSHOTS_MAX} snapshots already",
            code="too_many_snapshots",
            hint="Delete some, or clone the volume.",
        )
    row = {"id": snapshot.id, "volume_id": snapshot.volume_id, "name": snapshot.name}
    try:
        connection.execute(
            insert(volume_snapshots),
            {**row, "created_us": to_us(snapshot.created_at), "used_bytes": snapshot.used_bytes},
        )
    except IntegrityError as error:
        raise Conflict(
            f"a snapshot of this volume is already named {snapshot.name!r}",
            code="name_taken",
            hint="Choose another name, or delete the snapshot that has it.",
        ) from error


def find(connection: Connection, volume_id: str, reference: str) -> VolumeSnapshot | None:
    """By id or by name."""
    column = volume_snapshots.c
    wanted = select(volume_snapshots).where(
        column.volume_id == volume_id, or_(column.id == reference, column.name == reference)
    )
    row = connection.execute(wanted).first()
    return _from_row(row) if row else None


def all_of(connection: Connection, volume_id: str) -> list[VolumeSnapshot]:
    """Newest first."""
    column = volume_snapshots.c
    wanted = select(volume_snapshots).where(column.volume_id == volume_id)
    return [_from_row(row) for row in connection.execute(wanted.order_by(column.created_us.desc(), column.id.desc()))]


def every_id(connection: Connection) -> set[str]:
    return {row.id for row in connection.execute(select(volume_snapshots.c.id))}


def remove(connection: Connection, snapshot_id: str) -> None:
    connection.execute(delete(volume_snapshots).where(volume_snapshots.c.id == snapshot_id))


def _from_row(row: Row[Any]) -> VolumeSnapshot:
    return VolumeSnapshot(
        id=row.id,
        volume_id=row.volume_id,
        name=row.name,
        created_at=from_us(row.created_us),
        used_bytes=row.used_bytes,
    )
