"""Bodies about volumes."""

from __future__ import annotations

from datetime import datetime

from atoll.model.volume import Volume, VolumeMount
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
    """Make a volume, empty or a clone of another. `size_bytes` is the most that it may hold."""

    name: str
    size_bytes: int | None = None
    source: str | None = None


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
