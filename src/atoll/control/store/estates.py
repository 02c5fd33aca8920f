"""Named queries about what removed tenants have left."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, delete, select, union

from atoll.control.store.schema import sandboxes, secrets, snapshots, tenants, volumes


@dataclass(frozen=True, slots=True)
class Estate:
    """What is there of one tenant that was removed."""

    owner: str
    has_sandboxes: bool
    snapshot_ids: tuple[str, ...]
    volume_ids: tuple[str, ...]


def left(connection: Connection) -> list[Estate]:
    """Of all removed tenants of whom anything is there."""
    removed = select(tenants.c.id).where(tenants.c.removed_us.is_not(None))
    having = union(
        select(sandboxes.c.owner).where(sandboxes.c.ended_us.is_(None), sandboxes.c.owner.in_(removed)),
        *(select(table.c.owner).where(table.c.owner.in_(removed)) for table in (snapshots, volumes, secrets)),
    )
    return [_estate(connection, owner) for (owner,) in connection.execute(having)]


def forget_secrets(connection: Connection, owner: str) -> None:
    connection.execute(delete(secrets).where(secrets.c.owner == owner))


def _estate(connection: Connection, owner: str) -> Estate:
    living = select(sandboxes.c.id).where(sandboxes.c.owner == owner, sandboxes.c.ended_us.is_(None)).limit(1)
    return Estate(
        owner,
        connection.execute(living).one_or_none() is not None,
        tuple(connection.execute(select(snapshots.c.id).where(snapshots.c.owner == owner)).scalars()),
        tuple(connection.execute(select(volumes.c.id).where(volumes.c.owner == owner)).scalars()),
    )
