"""Use cases of snapshots as files: export one, and import one that another server has exported.

An import is on record as `making` before its first byte is read, as a snapshot is that is being taken; so what a killed
server left of it is removed at the next start by the same rule.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import timedelta

import anyio

from atoll.control.authz import Principal
from atoll.control.clock import Clock
from atoll.control.events import Events
from atoll.control.snapshots import Snapshots, SnapshotSpec
from atoll.control.store import snapshots as rows
from atoll.control.store.engine import Store
from atoll.control.store.moments import to_us
from atoll.control.store.snapshots import SnapshotRecord
from atoll.model import ids, limits
from atoll.model.errors import LimitExceeded
from atoll.model.resources import Resources
from atoll.model.snapshot import Snapshot, SnapshotState
from atoll.wire.node import NodePort


class Transfers:
    """Snapshots on their way to and from other servers."""

    def __init__(self, store: Store, snapshots: Snapshots, events: Events, node: NodePort, clock: Clock) -> None:
        self._store = store
        self._snapshots = snapshots
        self._events = events
        self._node = node
        self._clock = clock
        self._under_way: Counter[str] = Counter()

    @asynccontextmanager
    async def export(
        self, principal: Principal, reference: str, *, memory: bool
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of a snapshot's file, as long as the context lasts."""
        snapshot = await self._snapshots.find(principal, reference)
        with self._counted(principal.owner):
            async with self._node.image_export(
                snapshot.id, snapshot.template, snapshot.resources, memory=memory and snapshot.has_memory
            ) as chunks:
                self._events.report(self._events.of(principal, "snapshot.exported", target=snapshot.id))
                yield chunks

    async def import_(self, principal: Principal, spec: SnapshotSpec, chunks: AsyncIterator[bytes]) -> Snapshot:
        """A new snapshot out of a file's bytes; until all of them have been proven there is none."""
        await self._snapshots.check_wish(spec)
        with self._counted(principal.owner):
            snapshot = await self._arrive(principal.owner, spec, chunks)
        self._events.report(self._events.of(principal, "snapshot.imported", target=snapshot.id))
        return snapshot

    async def _arrive(self, owner: str, spec: SnapshotSpec, chunks: AsyncIterator[bytes]) -> Snapshot:
        snapshot = self._draft(spec)
        await self._store.write(rows.add, SnapshotRecord(owner, snapshot))
        try:
            arrived = await self._node.image_import(snapshot.id, chunks, memory=spec.memory)
            snapshot = replace(
                snapshot, template=arrived.template, resources=arrived.resources, has_memory=arrived.has_memory
            ).ready(arrived.memory_bytes, arrived.disk_bytes)
            with anyio.CancelScope(shield=True):
                await self._store.write(rows.ready, owner, snapshot)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._snapshots.give_up(snapshot.id)
            raise
        if snapshot.expires_at is not None:
            self._snapshots.expiry_changed()
        return snapshot

    def _draft(self, spec: SnapshotSpec) -> Snapshot:
        """What is known before the file's head has been read; the rest is put in with `ready`."""
        now = self._clock.now()
        return Snapshot(
            id=ids.mint(ids.SNAPSHOT, to_us(now) // 1000, secrets.token_bytes(16)),
            name=spec.name,
            sandbox_id="",
            template="",
            resources=Resources(),
            has_memory=False,
            state=SnapshotState.MAKING,
            created_at=now,
            expires_at=None if spec.expires_s is None else now + timedelta(seconds=spec.expires_s),
        )

    @contextmanager
    def _counted(self, owner: str) -> Iterator[None]:
        mine, all_ = self._under_way[owner], self._under_way.total()
        if mine >= limits.SNAPSHOT_TRANSFERS_MAX or all_ >= limits.SNAPSHOT_TRANSFERS_TOTAL_MAX:
            raise LimitExceeded(
                f"{mine} exports and imports of yours are under way already, and {all_} in all",
                code="too_many_transfers",
                hint="Try again when one of them has ended.",
            )
        self._under_way[owner] += 1
        try:
            yield
        finally:
            self._under_way[owner] -= 1
            if not self._under_way[owner]:
                del self._under_way[owner]
