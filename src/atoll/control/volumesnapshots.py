"""Use cases of a volume's snapshots: take, list, delete, roll back."""

from __future__ import annotations

import secrets

import anyio
from sqlalchemy import Connection

from atoll.control.authz import Principal
from atoll.control.clock import Clock
from atoll.control.events import Events
from atoll.control.store import diskroom
from atoll.control.store import volumes as volume_rows
from atoll.control.store import volumesnapshots as rows
from atoll.control.store.engine import Store
from atoll.control.store.moments import to_us
from atoll.model import ids
from atoll.model.errors import Conflict, InvalidArgument, NotFound
from atoll.model.sandbox import check_name
from atoll.model.volume import Volume, VolumeSnapshot
from atoll.wire.node import NodePort


class VolumeSnapshots:
    """What volumes held at earlier moments."""

    def __init__(self, store: Store, events: Events, node: NodePort, clock: Clock) -> None:
        self._store = store
        self._events = events
        self._node = node
        self._clock = clock

    async def create(self, principal: Principal, volume: Volume, name: str | None) -> VolumeSnapshot:
        """It exists on the node before it is on record, and only so. Sandboxes that have the volume go on."""
        if name is not None:
            check_name("name", name)
            if ids.is_id(ids.VOLUME_SNAPSHOT, name):
                raise InvalidArgument("this name looks like the id of a snapshot", code="invalid_name")
        now = self._clock.now()
        snapshot_id = ids.mint(ids.VOLUME_SNAPSHOT, to_us(now) // 1000, secrets.token_bytes(16))
        with anyio.CancelScope(shield=True):
            used_bytes = await self._node.volume_snapshot_create(volume.id, snapshot_id)
            snapshot = VolumeSnapshot(snapshot_id, volume.id, name, now, used_bytes)
            try:
                await self._store.write(_add, principal.owner, snapshot)
            except BaseException:
                await self._node.volume_snapshot_remove(snapshot_id)
                raise
        self._report(principal, "volume.snapshot_created", volume, snapshot)
        return snapshot

    async def list(self, volume: Volume) -> list[VolumeSnapshot]:
        """Newest first."""
        return await self._store.read(rows.all_of, volume.id)

    async def find(self, volume: Volume, reference: str) -> VolumeSnapshot:
        found = await self._store.read(rows.find, volume.id, reference[:128])
        if found is None:
            raise NotFound(
                f"the volume has no snapshot {reference[:80]!r}", code="snapshot_not_found", hint="List them."
            )
        return found

    async def delete(self, principal: Principal, volume: Volume, reference: str) -> None:
        """Volumes that were cloned from it stay as they are."""
        snapshot = await self.find(volume, reference)
        with anyio.CancelScope(shield=True):
            await self._store.write(rows.remove, snapshot.id)
            await self._node.volume_snapshot_remove(snapshot.id)
        self._report(principal, "volume.snapshot_deleted", volume, snapshot)

    async def rollback(self, principal: Principal, volume: Volume, reference: str) -> VolumeSnapshot:
        """Make the volume what it was. Conflict (volume_in_use) while a sandbox, also one that is paused, has it.

        The volume is closed before the record is asked who has it: a sandbox that was looked up earlier is on record
        by the time the node hears of it, and one that comes later is refused by the node.
        """
        snapshot = await self.find(volume, reference)
        async with self._node.volume_close(volume.id):
            await self._store.read(_check_unused, volume.id)
            with anyio.CancelScope(shield=True):
                await self._node.volume_rollback(volume.id, snapshot.id, volume.quota_bytes)
        self._report(principal, "volume.rolled_back", volume, snapshot)
        return snapshot

    def _report(self, principal: Principal, action: str, volume: Volume, snapshot: VolumeSnapshot) -> None:
        detail = {"snapshot": snapshot.id, "name": snapshot.name or ""}
        self._events.report(self._events.of(principal, action, target=volume.id, detail=detail))


def _add(connection: Connection, owner: str, snapshot: VolumeSnapshot) -> None:
    if volume_rows.find(connection, owner, snapshot.volume_id) is None:
        raise NotFound("the volume is gone", code="volume_not_found")
    rows.add(connection, snapshot)
    diskroom.check(connection, owner)


def _check_unused(connection: Connection, volume_id: str) -> None:
    holders = volume_rows.users(connection, volume_id)
    if holders:
        raise Conflict(
            f"the volume is mounted in {len(holders)} sandboxes",
            code="volume_in_use",
            hint=f"Kill them first: {', '.join(holders[:3])}. Or clone the snapshot into a new volume.",
        )
