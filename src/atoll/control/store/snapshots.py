"""Named queries about snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, tuple_, update
from sqlalchemy.exc import IntegrityError

from atoll.control.store import diskroom
from atoll.control.store.moments import from_us, to_us
from atoll.control.store.sandboxes import Position
from atoll.control.store.schema import snapshots
from atoll.model import limits
from atoll.model.errors import Conflict, LimitExceeded
from atoll.model.resources import Resources
from atoll.model.snapshot import Snapshot, SnapshotState


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A snapshot and whose it is."""

    owner: str
    snapshot: Snapshot


def add(connection: Connection, record: SnapshotRecord) -> None:
    """Put a new one on record; Conflict (name_taken) if another of this owner has its name."""
    mine = select(func.count()).select_from(snapshots).where(snapshots.c.owner == record.owner)
    if connection.execute(mine).scalar_one() >= limits.SNAPSHOTS_MAX:
        raise LimitExceeded(f"there are {limits.SNAPSHOTS_MAX} snapshots already", code="too_many_snapshots")
    try:
        connection.execute(insert(snapshots), _to_row(record))
    except IntegrityError as error:
        raise _name_taken(record.snapshot) from error
    diskroom.check(connection, record.owner)  # whoever has more than it may begins nothing


def ready(connection: Connection, owner: str, snapshot: Snapshot, *, takes_name: bool = False) -> None:
    """All of it is there, and within the quota of its owner: from here on it can be used.

    It may take its name from the snapshot that has it; one that is being made keeps its own.
    """
    row = _to_row(SnapshotRecord("", snapshot))
    # All but what was known when it was begun: an import learns on the way what it is a snapshot of.
    values = {name: value for name, value in row.items() if name not in ("id", "owner", "name", "created_us")}
    connection.execute(update(snapshots).where(snapshots.c.id == snapshot.id).values(**values))
    if takes_name and snapshot.name is not None:
        _take_name(connection, owner, snapshot)
    diskroom.check(connection, owner)


def _take_name(connection: Connection, owner: str, snapshot: Snapshot) -> None:
    whole = snapshots.c.state == SnapshotState.READY.value
    before = (snapshots.c.owner == owner, snapshots.c.name == snapshot.name, whole)
    connection.execute(update(snapshots).where(*before).values(name=None))
    mine = update(snapshots).where(snapshots.c.id == snapshot.id).values(name=snapshot.name)
    try:
        connection.execute(mine)
    except IntegrityError as error:
        raise _name_taken(snapshot) from error


def _name_taken(snapshot: Snapshot) -> Conflict:
    return Conflict(
        f"a snapshot is already named {snapshot.name!r}",
        code="name_taken",
        hint="Choose another name, or delete the snapshot that has it.",
    )


def remove(connection: Connection, snapshot_id: str) -> bool:
    return connection.execute(delete(snapshots).where(snapshots.c.id == snapshot_id)).rowcount == 1


def by_id(connection: Connection, owner: str, snapshot_id: str) -> Snapshot | None:
    row = connection.execute(
        select(snapshots).where(snapshots.c.owner == owner, snapshots.c.id == snapshot_id)
    ).one_or_none()
    return _from_row(row).snapshot if row else None


def by_name(connection: Connection, owner: str, name: str) -> Snapshot | None:
    row = connection.execute(
        select(snapshots).where(snapshots.c.owner == owner, snapshots.c.name == name)
    ).one_or_none()
    return _from_row(row).snapshot if row else None


def page(
    connection: Connection, owner: str, sandbox_id: str | None, after: Position | None, items_max: int
) -> list[Snapshot]:
    """The newest that come after a position, of one sandbox or of all; those in the making are not shown."""
    query = select(snapshots).where(snapshots.c.owner == owner, snapshots.c.state == SnapshotState.READY.value)
    if sandbox_id is not None:
        query = query.where(snapshots.c.sandbox_id == sandbox_id)
    if after is not None:
        query = query.where(tuple_(snapshots.c.created_us, snapshots.c.id) < (after.created_us, after.sandbox_id))
    query = query.order_by(snapshots.c.created_us.desc(), snapshots.c.id.desc()).limit(items_max)
    return [_from_row(row).snapshot for row in connection.execute(query)]


def every(connection: Connection) -> list[SnapshotRecord]:
    return [_from_row(row) for row in connection.execute(select(snapshots))]


def expired(connection: Connection, now: datetime) -> list[str]:
    """Those that have outlived their end; one that is being made, or copied from, is its maker's to remove."""
    rows = connection.execute(select(snapshots.c.id).where(_WHOLE, snapshots.c.expires_us <= to_us(now)))
    return [row.id for row in rows]


def next_expiry(connection: Connection) -> datetime | None:
    value = connection.execute(select(func.min(snapshots.c.expires_us)).where(_WHOLE)).scalar_one_or_none()
    return None if value is None else from_us(value)


def _to_row(record: SnapshotRecord) -> dict[str, Any]:
    one = record.snapshot
    return {
        "id": one.id,
        "owner": record.owner,
        "name": one.name,
        "sandbox_id": one.sandbox_id,
        "template": one.template,
        "cpu": one.resources.cpu,
        "memory_limit_bytes": one.resources.memory_bytes,
        "disk_limit_bytes": one.resources.disk_bytes,
        "pids": one.resources.pids,
        "has_memory": int(one.has_memory),
        "state": one.state.value,
        "created_us": to_us(one.created_at),
        "expires_us": None if one.expires_at is None else to_us(one.expires_at),
        "memory_bytes": one.memory_bytes,
        "disk_bytes": one.disk_bytes,
    }


def _from_row(row: Row[Any]) -> SnapshotRecord:
    value = row._asdict()
    snapshot = Snapshot(
        id=value["id"],
        name=value["name"],
        sandbox_id=value["sandbox_id"],
        template=value["template"],
        resources=Resources(
            cpu=value["cpu"],
            memory_bytes=value["memory_limit_bytes"],
            disk_bytes=value["disk_limit_bytes"],
            pids=value["pids"],
        ),
        has_memory=bool(value["has_memory"]),
        state=SnapshotState(value["state"]),
        created_at=from_us(value["created_us"]),
        expires_at=None if value["expires_us"] is None else from_us(value["expires_us"]),
        memory_bytes=value["memory_bytes"],
        disk_bytes=value["disk_bytes"],
    )
    return SnapshotRecord(value["owner"], snapshot)


_WHOLE = snapshots.c.state == SnapshotState.READY.value
