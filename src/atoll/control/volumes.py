"""Use cases of volumes: create, clone, list, find, delete; and the ways to their snapshots and files."""

from __future__ import annotations

import secrets
from dataclasses import replace

import anyio
import structlog
from sqlalchemy import Connection

from atoll.control.authz import Principal
from atoll.control.clock import Clock
from atoll.control.events import Events
from atoll.control.store import diskroom
from atoll.control.store import volumes as rows
from atoll.control.store import volumesnapshots as snapshot_rows
from atoll.control.store.engine import Store
from atoll.control.store.moments import to_us
from atoll.control.volumefiles import VolumeFiles
from atoll.control.volumesnapshots import VolumeSnapshots
from atoll.control.volumetokens import VolumeTokens
from atoll.model import ids
from atoll.model.errors import InvalidArgument, NotFound
from atoll.model.sandbox import check_name
from atoll.model.volume import Volume, check_quota
from atoll.wire.node import NodePort

log = structlog.get_logger(__name__)


class Volumes:
    """The volumes of all owners."""

    def __init__(self, store: Store, events: Events, node: NodePort, clock: Clock, secret: bytes = b"") -> None:
        self._store = store
        self._events = events
        self._node = node
        self._clock = clock
        self.snapshots = VolumeSnapshots(store, events, node, clock)
        self.tokens = VolumeTokens(secret, store)

    async def create(
        self,
        principal: Principal,
        name: str,
        quota_bytes: int | None,
        source: str | None = None,
        snapshot: str | None = None,
    ) -> Volume:
        """A new volume, empty, or a clone of another or of one of its snapshots.

        It exists on the node before it is on record, and only so.
        """
        check_name("name", name)
        if ids.is_id(ids.VOLUME, name):
            raise InvalidArgument("this name looks like the id of a volume", code="invalid_name")
        if snapshot is not None and source is None:
            raise InvalidArgument("a snapshot needs the volume that it is of, as source", code="invalid_body")
        origin = None if source is None else await self.find(principal, source)
        disk = origin.id if origin else ""
        if origin is not None and snapshot is not None:
            disk = (await self.snapshots.find(origin, snapshot)).id
        size = quota_bytes if quota_bytes is not None else (origin.quota_bytes if origin else DEFAULT_QUOTA_BYTES)
        now = self._clock.now()
        volume = Volume(
            id=ids.mint(ids.VOLUME, to_us(now) // 1000, secrets.token_bytes(16)),
            name=name,
            quota_bytes=check_quota(size),
            created_at=now,
        )
        with anyio.CancelScope(shield=True):
            await self._node.volume_create(volume.id, volume.quota_bytes, disk)
            try:
                await self._store.write(_add, principal.owner, volume)
            except BaseException:
                await self._node.volume_remove(volume.id)
                raise
        self._events.report(self._events.of(principal, "volume.created", target=volume.id, detail={"name": name}))
        return volume

    async def find(self, principal: Principal, reference: str) -> Volume:
        """By id or by name, with what it holds."""
        found = await self._store.read(rows.find, principal.owner, reference[:128])
        measured = None if found is None else await self._measured(principal, found)
        if measured is None:
            raise NotFound(f"there is no volume {reference[:80]!r}", code="volume_not_found", hint="List them.")
        return measured

    async def list(self, principal: Principal) -> list[Volume]:
        found = [await self._measured(principal, one) for one in await self._store.read(rows.all_of, principal.owner)]
        return [one for one in found if one is not None]

    async def _measured(self, principal: Principal, volume: Volume) -> Volume | None:
        """With what it holds: nothing, if it is on record and its disk is lost. None if it has gone meanwhile."""
        try:
            return replace(volume, used_bytes=await self._node.volume_used_bytes(volume.id))
        except NotFound:
            return await self._store.read(rows.find, principal.owner, volume.id)

    async def delete(self, principal: Principal, reference: str) -> None:
        """With its snapshots. Conflict (volume_in_use) while a sandbox, also one that is paused, has it."""
        volume = await self.find(principal, reference)
        await self.discard(volume.id)
        self._events.report(self._events.of(principal, "volume.deleted", target=volume.id))

    async def discard(self, volume_id: str) -> None:
        """Remove record and disks. Idempotent.

        The volume is closed first, as for a rollback: a sandbox that comes later is refused by the node.
        """
        with anyio.CancelScope(shield=True):
            async with self._node.volume_close(volume_id):
                await self._remove(volume_id)

    async def _remove(self, volume_id: str) -> None:
        for snapshot_id in await self._store.write(rows.remove, volume_id):
            await self._node.volume_snapshot_remove(snapshot_id)
        await self._node.volume_remove(volume_id)

    async def files(self, principal: Principal, reference: str) -> VolumeFiles:
        """The files of a volume, by its id or name."""
        return await VolumeFiles.of(self._store, self._node, principal, reference)

    async def reconcile(self) -> None:
        """At start: a volume that is not on record was left by a create or a delete that was cut short."""
        known = await self._store.read(rows.every_id) | await self._store.read(snapshot_rows.every_id)
        there = self._node.volume_ids()
        for lost in sorted(known - there):
            log.error("volume_lost", volume_id=lost)
        for stranger in there - known:
            await self._node.volume_remove(stranger)


def _add(connection: Connection, owner: str, volume: Volume) -> None:
    rows.add(connection, owner, volume)
    diskroom.check(connection, owner)


DEFAULT_QUOTA_BYTES = 10 * 1024**3
