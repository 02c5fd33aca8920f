"""Bodies about volumes."""

from __future__ import annotations

from datetime import datetime

from atoll.model.volume import Volume, VolumeMount, VolumeSnapshot
from atoll.wire.public.base import Answer, Request


class VolumeMountBody(Request):
    """A volume, by id or name, at a path in a sandbox."""

    volume: str
    path: str
    read_only: bool = False

    def mount(self) -> VolumeMount:
        return VolumeMount(self.volume, self.path, self.read_only)


class VolumeMountView(Answer):
    volume: str
    path: str
    read_only: bool

    @classmethod
    def of(cls, mount: VolumeMount) -> VolumeMountView:
        return cls(volume=mount.volume, path=mount.path, read_only=mount.read_only)


class VolumeCreate(Request):
    """Make a volume, empty, or a clone of `source` as it is or as it was in `snapshot`.

    `size_bytes` is the most that it may hold.
    """

    name: str
    size_bytes: int | None = None
    source: str | None = None
    snapshot: str | None = None


class VolumeView(Answer):
    id: str
    name: str
    size_bytes: int
    used_bytes: int
    created_at: datetime

    @classmethod
    def of(cls, volume: Volume) -> VolumeView:
        return cls(
            id=volume.id,
            name=volume.name,
            size_bytes=volume.quota_bytes,
            used_bytes=volume.used_bytes,
            created_at=volume.created_at,
        )


class VolumeList(Answer):
    items: list[VolumeView]


class VolumeSnapshotCreate(Request):
    """Keep what a volume holds now, under a name or without one."""

    name: str | None = None


class VolumeSnapshotView(Answer):
    """`used_bytes` is what the volume had written by then."""

    id: str
    volume: str
    name: str | None
    used_bytes: int
    created_at: datetime

    @classmethod
    def of(cls, snapshot: VolumeSnapshot) -> VolumeSnapshotView:
        return cls(
            id=snapshot.id,
            volume=snapshot.volume_id,
            name=snapshot.name,
            used_bytes=snapshot.used_bytes,
            created_at=snapshot.created_at,
        )


class VolumeSnapshotList(Answer):
    """Newest first."""

    items: list[VolumeSnapshotView]


class VolumeRollback(Request):
    """Make a volume what it was in one of its snapshots, by id or name."""

    snapshot: str


class VolumeFileMove(Request):
    """Move or rename a file or a directory of a volume. With `parents` the directories on the way are made."""

    source: str
    target: str
    overwrite: bool = True
    parents: bool = False


class VolumeFileChange(Request):
    """Change the owner, the group (numbers) or the rights (octal, such as 755) of a file or directory of a volume."""

    path: str
    uid: int | None = None
    gid: int | None = None
    mode: str | None = None


class VolumeDirectoryCreate(Request):
    """Make a directory in a volume, and those above it; one that is there already is fine."""

    path: str
    uid: int | None = None
    gid: int | None = None
    mode: str | None = None
