"""The part of a node's port that is about volumes: they themselves, their files, and their snapshots.

Blocking work is done in threads of its own, a few at a time and a small step each, so that a caller with a slow line or
a folder of millions holds up nobody else; between two steps it can be cancelled.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from atoll.model import limits
from atoll.model.errors import AtollError, Conflict, Forbidden, InvalidArgument, LimitExceeded, NotFound, OutOfSpace
from atoll.model.volume import VolumeMount
from atoll.node import volumefiles, volumes
from atoll.node.host import Host
from atoll.wire.volumes import Ownership, VolumeFile, VolumeListing

T = TypeVar("T")

_KINDS: dict[int, tuple[type[AtollError], str]] = {
    errno.ENOENT: (NotFound, "not_found"),
    errno.EEXIST: (Conflict, "exists"),
    errno.ENOTEMPTY: (Conflict, "not_empty"),
    errno.EBUSY: (Conflict, "busy"),
    errno.EISDIR: (InvalidArgument, "is_directory"),
    errno.ENOTDIR: (InvalidArgument, "not_directory"),
    errno.EACCES: (Forbidden, "permission_denied"),
    errno.EPERM: (Forbidden, "permission_denied"),
    errno.EROFS: (Forbidden, "read_only"),
    errno.EXDEV: (Forbidden, "outside_volume"),
    errno.ENOSPC: (OutOfSpace, "disk_full"),
    errno.EDQUOT: (OutOfSpace, "quota"),
    errno.EINVAL: (InvalidArgument, "invalid_argument"),
    errno.ELOOP: (InvalidArgument, "invalid_argument"),
    errno.ENAMETOOLONG: (InvalidArgument, "invalid_argument"),
    errno.EFBIG: (OutOfSpace, "disk_full"),
    errno.EMLINK: (Conflict, "exists"),
}


@dataclass(slots=True)
class VolumeRoom:
    """How much work on volumes is under way, and which of them nobody may be given just now."""

    threads: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(limits.VOLUME_THREADS))
    transfers: int = 0
    closed: set[str] = field(default_factory=set)


class VolumePort:
    """A node's words about the content of volumes; the node itself adds the rest."""

    _host: Host
    _volume_room: VolumeRoom

    async def volume_create(self, volume_id: str, quota_bytes: int, source: str = "") -> None:
        await self._step([], volumes.create, self._host.pool, volume_id, quota_bytes, source)

    async def volume_remove(self, volume_id: str) -> None:
        await self._step([], volumes.remove, self._host.pool, volume_id)

    async def volume_used_bytes(self, volume_id: str) -> int:
        return await self._step([], volumes.used_bytes, self._host.pool, volume_id)

    def volume_ids(self) -> frozenset[str]:
        return volumes.known(self._host.pool)

    async def volume_file_stat(self, volume_id: str, path: str, *, follow: bool) -> VolumeFile:
        return await self._step([path], volumefiles.file_stat, self._tree(volume_id), path, follow=follow)

    async def volume_file_list(self, volume_id: str, path: str, depth: int, items_max: int) -> VolumeListing:
        return await self._step([path], volumefiles.file_list, self._tree(volume_id), path, depth, items_max)

    @asynccontextmanager
    async def volume_file_read(
        self, volume_id: str, path: str, offset: int, length: int | None
    ) -> AsyncIterator[_Reading]:
        with self._transfer():
            opened = await self._step([path], volumefiles.Reading, self._tree(volume_id), path, offset, length)
            try:
                yield _Reading(opened, partial(self._step, [path], opened.piece))
            finally:
                opened.close()

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
        with self._transfer():
            begin = partial(volumefiles.Writing, parents=parents, overwrite=overwrite)
            writing = await self._step([path], begin, self._tree(volume_id), path, ownership)
            try:
                async for data in chunks:
                    await self._step([path], writing.add, data)
                return await self._step([path], writing.commit)
            finally:
                writing.close()

    async def volume_file_change(self, volume_id: str, path: str, ownership: Ownership) -> VolumeFile:
        return await self._step([path], volumefiles.file_change, self._tree(volume_id), path, ownership)

    async def volume_directory_create(
        self, volume_id: str, path: str, ownership: Ownership, *, parents: bool, exist_ok: bool
    ) -> VolumeFile:
        make = partial(volumefiles.directory_create, parents=parents, exist_ok=exist_ok)
        return await self._step([path], make, self._tree(volume_id), path, ownership)

    async def volume_file_move(
        self, volume_id: str, source: str, target: str, *, overwrite: bool, parents: bool
    ) -> VolumeFile:
        move = partial(volumefiles.file_move, overwrite=overwrite, parents=parents)
        return await self._step([source, target], move, self._tree(volume_id), source, target)

    async def volume_file_remove(self, volume_id: str, path: str, *, recursive: bool) -> None:
        with self._transfer():
            steps = volumefiles.file_remove(self._tree(volume_id), path, recursive=recursive)
            try:
                while await self._step([path], _advance, steps):
                    pass
            finally:
                steps.close()

    async def volume_snapshot_create(self, volume_id: str, snapshot_id: str) -> int:
        return await self._step([], volumes.snapshot, self._host.pool, volume_id, snapshot_id)

    async def volume_snapshot_remove(self, snapshot_id: str) -> None:
        await self._step([], volumes.remove, self._host.pool, snapshot_id)

    @asynccontextmanager
    async def volume_close(self, volume_id: str) -> AsyncIterator[None]:
        if volume_id in self._volume_room.closed:
            raise _busy()
        self._volume_room.closed.add(volume_id)
        try:
            yield
        finally:
            self._volume_room.closed.discard(volume_id)

    async def volume_rollback(self, volume_id: str, snapshot_id: str, quota_bytes: int) -> None:
        await self._step([], volumes.rollback, self._host.pool, volume_id, snapshot_id, quota_bytes)

    def _check_volumes(self, mounts: Sequence[VolumeMount]) -> None:
        """Refuse a sandbox whose volumes are not there, or are being replaced or deleted at this moment."""
        volumes.check_present(self._host.pool, mounts)
        self._check_open(mounts)

    def _check_open(self, mounts: Sequence[VolumeMount]) -> None:
        if any(mount.volume in self._volume_room.closed for mount in mounts):
            raise _busy()

    def _tree(self, volume_id: str) -> Path:
        return volumes.checked_path(self._host.pool, volume_id)

    @contextmanager
    def _transfer(self) -> Iterator[None]:
        room = self._volume_room
        if room.transfers >= limits.VOLUME_TRANSFERS_MAX:
            raise LimitExceeded("too many files of volumes are being read and written", code="busy", retry_after_s=1.0)
        room.transfers += 1
        try:
            yield
        finally:
            room.transfers -= 1

    async def _step(self, paths: Sequence[str], work: Callable[..., T], *args: object, **options: object) -> T:
        """One piece of blocking work in a thread; what the system says about it in our words."""
        try:
            return await anyio.to_thread.run_sync(partial(work, *args, **options), limiter=self._volume_room.threads)
        except UnicodeEncodeError:
            raise InvalidArgument("a path that cannot be a name on this system", code="invalid_argument") from None
        except OSError as error:
            raise _told(error, paths) from error


class _Reading:
    """A file that is open, and its bytes piece by piece."""

    def __init__(self, opened: volumefiles.Reading, piece: Callable[[], Awaitable[bytes]]) -> None:
        self.file = opened.file
        self._piece = piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self._piece():
            yield data


def _advance(steps: Iterator[None]) -> bool:
    return next(steps, StopIteration) is not StopIteration


def _busy() -> Conflict:
    return Conflict("the volume is being rolled back or deleted", code="volume_busy", hint="Try again in a moment.")


def _told(error: OSError, paths: Sequence[str]) -> AtollError:
    if error.errno not in _KINDS:
        raise error
    kind, code = _KINDS[error.errno]
    return kind(volumefiles.problem_words(error, paths), code=code)
