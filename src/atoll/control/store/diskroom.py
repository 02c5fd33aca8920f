"""A tenant's quota of disk: held by its sandboxes, its volumes and their snapshots, and its snapshots.

Asked in the transaction that adds something, after it was added: what would be over the quota is then not added.
"""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from atoll.control.store import tenants
from atoll.control.store.schema import sandboxes, snapshots, volume_snapshots, volumes
from atoll.model.quota import check_disk
from atoll.model.snapshot import SnapshotState


def kept_bytes(connection: Connection, owner: str) -> int:
    """What a tenant has that is no disk of a sandbox: the sizes of its volumes, and what snapshots hold.

    What a snapshot shares with its sandbox counts for both: it stays when the other goes.
    """
    volume, kept, mark = volumes.c, volume_snapshots.c, snapshots.c
    sizes = (
        select(func.coalesce(func.sum(volume.quota_bytes), 0)).where(volume.owner == owner),
        select(func.coalesce(func.sum(kept.used_bytes), 0))
        .select_from(volume_snapshots.join(volumes, volume.id == kept.volume_id))
        .where(volume.owner == owner),
        select(func.coalesce(func.sum(mark.memory_bytes + mark.disk_bytes), 0)).where(
            mark.owner == owner, mark.state != SnapshotState.PASSING.value
        ),
    )
    return sum(int(connection.execute(size).scalar_one()) for size in sizes)


def check(connection: Connection, owner: str) -> None:
    """Refuse (quota_exceeded) what has just been added if the tenant has more disk now than it may."""
    tenant = tenants.by_id(connection, owner)
    if tenant is None or tenant.quota.disk_bytes is None:
        return
    live = select(func.coalesce(func.sum(sandboxes.c.disk_bytes), 0)).where(
        sandboxes.c.owner == owner, sandboxes.c.ended_us.is_(None)
    )
    held = int(connection.execute(live).scalar_one()) + kept_bytes(connection, owner)
    check_disk("tenant", tenant.quota.disk_bytes, held)
