"""What a new sandbox is made of: the snapshot or template that its caller named, and the volumes, looked up."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection

from atoll.control.store import snapshots as snapshot_rows
from atoll.control.store import volumes as volume_rows
from atoll.control.store.engine import Store
from atoll.model import ids
from atoll.model.errors import NotFound
from atoll.model.resources import Resources
from atoll.model.sandbox import SandboxSpec
from atoll.model.snapshot import Snapshot, SnapshotState
from atoll.model.volume import VolumeMount
from atoll.wire.node import NodePort


class Sources:
    """Names of an owner's snapshots and volumes, as ids."""

    def __init__(self, store: Store, node: NodePort) -> None:
        self._store = store
        self._node = node
        self._templates: frozenset[str] = frozenset()

    async def settled(self, owner: str, spec: SandboxSpec) -> SandboxSpec:
        """The same wish with ids for names; of a snapshot it takes what the caller did not choose."""
        if spec.volumes:
            mounts = await self._store.read(_volumes, owner, spec.volumes)
            spec = replace(spec, volumes=mounts)
        snapshot = await self.snapshot(owner, spec.template)
        return spec if snapshot is None else from_snapshot(spec, snapshot)

    async def snapshot(self, owner: str, name: str) -> Snapshot | None:
        """The snapshot that stands where a template could; None if it is one. Names of templates come first."""
        if not ids.is_id(ids.SNAPSHOT, name):
            if name in self._templates:
                return None
            self._templates = frozenset(template.name for template in await self._node.templates())
            if name in self._templates:
                return None
        return await self._store.read(_snapshot, owner, name)


def from_snapshot(spec: SandboxSpec, snapshot: Snapshot) -> SandboxSpec:
    """A wish for a sandbox that begins where a snapshot was taken; pure."""
    base, wished = snapshot.resources, spec.resources
    resources = Resources(
        **{
            name: getattr(wished if name in spec.chosen else base, name)
            for name in ("cpu", "memory_bytes", "disk_bytes", "pids")
        }
    )
    return replace(spec, template=snapshot.template, snapshot_id=snapshot.id, resources=resources)


def _snapshot(connection: Connection, owner: str, name: str) -> Snapshot | None:
    look_up = snapshot_rows.by_id if ids.is_id(ids.SNAPSHOT, name) else snapshot_rows.by_name
    found = look_up(connection, owner, name)
    if found is not None and found.state is not SnapshotState.MAKING:
        return found
    if ids.is_id(ids.SNAPSHOT, name):
        raise NotFound(f"there is no snapshot {name!r}", code="snapshot_not_found", hint="List the snapshots.")
    return None


def _volumes(connection: Connection, owner: str, mounts: tuple[VolumeMount, ...]) -> tuple[VolumeMount, ...]:
    settled = []
    for mount in mounts:
        volume = volume_rows.find(connection, owner, mount.volume)
        if volume is None:
            raise NotFound(
                f"there is no volume {mount.volume[:80]!r}", code="volume_not_found", hint="Create it first."
            )
        settled.append(replace(mount, volume=volume.id))
    return tuple(settled)
