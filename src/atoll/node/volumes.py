"""Volumes on this machine: subvolumes with a quota each, and the slots through which sandboxes see them.

A restore wants the same list of mounts as its snapshot had, so every sandbox has the same slots from its start, some
writable and some not, and only what is behind them differs. Behind an unused slot is one folder that nobody can write
to, because it is a read-only subvolume: what is shared by all must not carry anything from one to the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from atoll.model import limits
from atoll.model.errors import AtollError, Conflict, Internal, NotFound
from atoll.model.volume import VolumeMount
from atoll.node import beneath
from atoll.node.disks import btrfs
from atoll.node.disks.pool import Pool
from atoll.node.runtime.base import Bind

SLOTS = "/.atoll/slots"
_EMPTY = ".empty"
_FRESH = ".rollback-"
_OWNER = 1000  # the user `user` of every template: it should be able to write to a new volume


def binds(pool: Pool, mounts: Sequence[VolumeMount]) -> tuple[Bind, ...]:
    """The slots of a sandbox, the same list for all; pure but for the paths."""
    empty = pool.root / "volumes" / _EMPTY
    behind = {slot: volume_path(pool, mount.volume) for slot, mount in _slotted(mounts)}
    return tuple(
        Bind(behind.get(slot, empty), slot, read_only=read_only)
        for read_only in (False, True)
        for slot in (_slot(number, read_only) for number in range(limits.VOLUME_SLOTS))
    )


def placed(mounts: Sequence[VolumeMount]) -> list[list[str]]:
    """Which slot goes where, in the guest's words."""
    return [[slot, mount.path] for slot, mount in _slotted(mounts)]


def _slotted(mounts: Sequence[VolumeMount]) -> Iterator[tuple[str, VolumeMount]]:
    for read_only in (False, True):
        chosen = [mount for mount in mounts if mount.read_only is read_only]
        for number, mount in enumerate(chosen):
            yield _slot(number, read_only), mount


def _slot(number: int, read_only: bool) -> str:
    return f"{SLOTS}/{'ro' if read_only else 'rw'}{number}"


def volume_path(pool: Pool, volume_id: str) -> Path:
    return pool.root / "volumes" / volume_id


def prepare(pool: Pool) -> None:
    """What is behind a slot that is not used; made once."""
    empty = pool.root / "volumes" / _EMPTY
    if not btrfs.is_subvolume(empty):
        btrfs.subvolume_create(empty)
        os.chmod(empty, 0o755)  # noqa: S103 - the root of a mount inside
        btrfs.read_only_set(empty, True)


def create(pool: Pool, volume_id: str, quota_bytes: int, source: str = "") -> None:
    """A new volume, empty or a clone of another. On an error nothing is left."""
    path = volume_path(pool, volume_id)
    if source:
        btrfs.snapshot_create(checked_path(pool, source), path)
    else:
        btrfs.subvolume_create(path)
    try:
        if not source:
            os.chown(path, _OWNER, _OWNER)
            os.chmod(path, 0o755)  # noqa: S103 - the root of a mount inside
        btrfs.quota_limit(path, quota_bytes)
    except BaseException:
        btrfs.subvolume_delete(path)
        raise


def snapshot(pool: Pool, volume_id: str, snapshot_id: str) -> int:
    """Keep what a volume holds at this moment, for reading only; says how much the volume has written."""
    source = checked_path(pool, volume_id)
    written_bytes = btrfs.usage_bytes(source)
    btrfs.snapshot_create(source, volume_path(pool, snapshot_id), read_only=True)
    return written_bytes


def rollback(pool: Pool, volume_id: str, snapshot_id: str, quota_bytes: int) -> None:
    """Put a copy of a snapshot in a volume's place, in one step; what was there goes.

    A copy that was made and not yet put there has a name that no record knows, so the next start removes it.
    """
    path = checked_path(pool, volume_id)
    fresh = volume_path(pool, f"{_FRESH}{os.urandom(8).hex()}")
    btrfs.snapshot_create(checked_path(pool, snapshot_id), fresh)
    try:
        btrfs.quota_limit(fresh, quota_bytes)
        beneath.exchange(path, fresh)
    finally:
        btrfs.subvolume_delete(fresh)


def remove(pool: Pool, volume_id: str) -> None:
    """Idempotent."""
    path = volume_path(pool, volume_id)
    if btrfs.is_subvolume(path):
        btrfs.subvolume_delete(path)


def known(pool: Pool) -> frozenset[str]:
    return frozenset(entry.name for entry in (pool.root / "volumes").iterdir() if entry.name != _EMPTY)


def used_bytes(pool: Pool, volume_id: str) -> int:
    return btrfs.usage_bytes(checked_path(pool, volume_id))


def checked_path(pool: Pool, volume_id: str) -> Path:
    path = volume_path(pool, volume_id)
    if not btrfs.is_subvolume(path):
        raise NotFound("there is no such volume here", code="volume_not_found")
    return path


def wake_failure(mounts: Sequence[VolumeMount], error: Internal) -> AtollError:
    """Why a sandbox did not wake: with volumes it may be that something it had open there is gone meanwhile."""
    if not mounts or error.code != "start_failed":
        return error
    return Conflict(
        "the sandbox did not wake; what it had open in a volume may be gone",
        code="volume_changed",
        hint="Put the file or folder back and resume again, or resume without memory. It stays paused.",
        detail=error.detail,
    )


def check_present(pool: Pool, mounts: Sequence[VolumeMount]) -> None:
    """Refuse to make a sandbox whose volume is not there: behind its slot there would be nothing."""
    for mount in mounts:
        if not btrfs.is_subvolume(volume_path(pool, mount.volume)):
            raise Conflict("a volume of the sandbox is gone", code="volume_not_found")
