"""What control and a node say to each other about the files and the snapshots of volumes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class VolumeFile:
    """A file, a folder, a link or something rarer in a volume. `path` begins at the volume's root, with a slash."""

    path: str
    name: str
    type: str
    size: int
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    atime_ns: int
    ctime_ns: int
    links: int
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Ownership:
    """Whose a file is and what they may do with it; what is None stays, or is as usual for a new one."""

    uid: int | None = None
    gid: int | None = None
    mode: int | None = None


@dataclass(frozen=True, slots=True)
class VolumeListing:
    """What is in a folder, by path; `truncated` says that there is more."""

    items: tuple[VolumeFile, ...]
    truncated: bool


class VolumeReading(Protocol):
    """A file that is open to be read: what it is, and its bytes."""

    file: VolumeFile

    def __aiter__(self) -> AsyncIterator[bytes]: ...


class VolumePort(Protocol):
    """The part of a node's port that is about what volumes hold. Paths are those of a caller, and go nowhere else."""

    async def volume_file_stat(self, volume_id: str, path: str, *, follow: bool) -> VolumeFile: ...

    async def volume_file_list(self, volume_id: str, path: str, depth: int, items_max: int) -> VolumeListing: ...

    def volume_file_read(
        self, volume_id: str, path: str, offset: int, length: int | None
    ) -> AbstractAsyncContextManager[VolumeReading]: ...

    async def volume_file_write(
        self,
        volume_id: str,
        path: str,
        chunks: AsyncIterator[bytes],
        ownership: Ownership,
        *,
        parents: bool,
        overwrite: bool,
    ) -> VolumeFile:
        """All of it or nothing: the file appears, or is replaced, when the last chunk has come."""
        ...

    async def volume_file_change(self, volume_id: str, path: str, ownership: Ownership) -> VolumeFile: ...

    async def volume_directory_create(
        self, volume_id: str, path: str, ownership: Ownership, *, parents: bool, exist_ok: bool
    ) -> VolumeFile: ...

    async def volume_file_move(
        self, volume_id: str, source: str, target: str, *, overwrite: bool, parents: bool
    ) -> VolumeFile: ...

    async def volume_file_remove(self, volume_id: str, path: str, *, recursive: bool) -> None: ...

    async def volume_snapshot_create(self, volume_id: str, snapshot_id: str) -> int:
        """What the volume holds now, under an id that the caller brings; says how much that is."""
        ...

    async def volume_snapshot_remove(self, snapshot_id: str) -> None:
        """Idempotent. Volumes that were made from it are not touched."""
        ...

    def volume_close(self, volume_id: str) -> AbstractAsyncContextManager[None]:
        """As long as this is open no sandbox is given the volume; Conflict (volume_busy) if somebody else has it."""
        ...

    async def volume_rollback(self, volume_id: str, snapshot_id: str, quota_bytes: int) -> None:
        """Make a volume that no sandbox has what it was; on an error it stays as it is."""
        ...
