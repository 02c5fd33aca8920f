"""The disk pool: one btrfs that holds templates, sandboxes, snapshots and volumes of one server.

If the data directory is on btrfs the pool is a folder of it; else it is a sparse image `pool.img` in it, mounted
through a loop device at `<data>/pool`. Opening is idempotent and finishes what an interrupted run began: the image gets
its name only once it holds a filesystem, and a mount that is there is used. Processes that open the same pool take
turns.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from atoll.model import limits
from atoll.model.errors import AtollError, Conflict, Internal, InvalidArgument, NotFound, Unavailable
from atoll.node import spawn
from atoll.node.disks import btrfs

FOLDERS = ("templates", "sandboxes", "snapshots", "volumes")
MOUNT_OPTIONS = "nodev,nosuid,noatime,discard=async"

_ASIDE = "-aside"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_FULL = (errno.ENOSPC, errno.EDQUOT)


def image_size_bytes(free_bytes: int) -> int:
    """How large a new pool image is: a share of what is free, in whole MiB."""
    share = int(free_bytes * limits.POOL_SHARE_OF_FREE)
    return min(share, limits.POOL_BYTES_MAX) // limits.MIB * limits.MIB


@dataclass(frozen=True, slots=True)
class Pool:
    root: Path
    image: Path | None  # None: the data directory itself is on btrfs

    @classmethod
    def open(cls, data_dir: Path, size_bytes: int = 0) -> Pool:
        """The pool of a data directory, made and mounted if need be; `size_bytes` 0 takes a share of the free space."""
        data_dir = data_dir.absolute()
        data_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
        with _turn(data_dir):
            root = data_dir / "pool"
            root.mkdir(mode=0o700, exist_ok=True)
            image = None if btrfs.is_btrfs(data_dir) else data_dir / "pool.img"
            if image is not None and not os.path.ismount(root):
                _image_create(image, size_bytes)
                _mount(image, root)
            # Only root enters: the disks hold setuid programs and files of guests' users, who are strangers here.
            os.chmod(root, 0o700)
            for folder in FOLDERS:
                (root / folder).mkdir(mode=0o700, exist_ok=True)
            btrfs.quota_enable(root)
        return cls(root, image)

    def close(self) -> None:
        """Unmount the image and free its loop device; the data stays."""
        if self.image is None:
            return
        with _turn(self.root.parent):
            if os.path.ismount(self.root):
                spawn.run(["umount", self.root])
            _loop_free(self.image)

    def remove(self) -> None:
        """Delete the pool with all that is in it; raises while something of it is in use."""
        for folder in FOLDERS:
            for path in sorted((self.root / folder).iterdir()):
                if btrfs.is_subvolume(path):
                    btrfs.subvolume_delete(path)
        self.close()
        if self.image is not None:
            self.image.unlink()
        else:
            shutil.rmtree(self.root)

    def template_path(self, name: str) -> Path:
        path = self.root / "templates" / _checked(name)
        if not btrfs.is_subvolume(path):
            raise NotFound(f"there is no template named {name!r}", code="no_such_template")
        return path

    def disk_path(self, sandbox_id: str) -> Path:
        return self.root / "sandboxes" / _checked(sandbox_id)

    def disk_create(self, sandbox_id: str, template: Path, quota_bytes: int) -> Path:
        """A writable copy of a template, capped at `quota_bytes` of its own data (0: no cap)."""
        path = self.disk_path(sandbox_id)
        if self.free_bytes() < limits.POOL_RESERVE_BYTES:
            raise pool_full("less is free than is kept in reserve")
        with meaning(f"the disk of {sandbox_id}"):
            btrfs.snapshot_create(template, path)
            try:
                btrfs.quota_limit(path, quota_bytes)
            except BaseException:
                btrfs.subvolume_delete(path)
                raise
        return path

    def disk_limit(self, sandbox_id: str, quota_bytes: int) -> None:
        """Another cap on the space that a sandbox may take (0: none)."""
        with meaning(f"the disk of {sandbox_id}"):
            btrfs.quota_limit(self.disk_path(sandbox_id), quota_bytes)

    def disk_delete(self, sandbox_id: str) -> None:
        """Remove a sandbox's disk; one that is not there is fine."""
        with contextlib.suppress(NotFound), meaning(f"the disk of {sandbox_id}"):
            btrfs.subvolume_delete(self.disk_path(sandbox_id))

    def disk_set_aside(self, sandbox_id: str) -> None:
        """Make room for another disk under this name. What was there is under one that no record knows."""
        with meaning(f"the disk of {sandbox_id}"):
            self.disk_path(sandbox_id).rename(self.disk_path(sandbox_id + _ASIDE))

    def disk_aside_delete(self, sandbox_id: str) -> None:
        """Idempotent, as `disk_delete` is."""
        self.disk_delete(sandbox_id + _ASIDE)

    def disk_usage_bytes(self, sandbox_id: str) -> int:
        with meaning(f"the disk of {sandbox_id}"):
            return btrfs.usage_bytes(self.disk_path(sandbox_id))

    def disks(self) -> list[str]:
        """The sandboxes that have a disk."""
        return sorted(name for name in os.listdir(self.root / "sandboxes") if not name.startswith("."))

    def free_bytes(self) -> int:
        """What can still be written: a sparse image is bounded by the filesystem that it lies on, too."""
        free = shutil.disk_usage(self.root).free
        return free if self.image is None else min(free, shutil.disk_usage(self.image.parent).free)


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidArgument(f"{name[:64]!r} is not a name for something on disk", code="invalid_name")
    return name


def is_full(error: OSError) -> bool:
    """Whether there was no room: on the disk, or within a quota."""
    return error.errno in _FULL


def pool_full(detail: str) -> Unavailable:
    """What is told when there is no room on the host."""
    return Unavailable(
        "the disk pool is full",
        code="disk_pool_full",
        hint="remove sandboxes, snapshots or volumes, or give the server a larger pool",
        detail=detail,
    )


@contextlib.contextmanager
def meaning(what: str) -> Iterator[None]:
    """Give a system call's error its place in our tree."""
    try:
        yield
    except OSError as error:
        raise _translated(error, what) from error


@contextlib.contextmanager
def wanting_room() -> Iterator[None]:
    """Tell of a full disk in our words; whatever else goes wrong stays what it is."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise pool_full(str(error)) from error
        raise


def _translated(error: OSError, what: str) -> AtollError:
    if is_full(error):
        return pool_full(str(error))
    if error.errno == errno.EEXIST:
        return Conflict(f"{what} exists already", code="disk_exists")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return NotFound(f"{what} does not exist", code="no_such_disk")
    return Internal(f"{what}: {error.strerror}", code="disk_failed", detail=str(error))


@contextlib.contextmanager
def _turn(data_dir: Path) -> Iterator[None]:
    """One process at a time opens or closes the pool of a data directory."""
    fd = os.open(data_dir / "pool.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _image_create(image: Path, size_bytes: int) -> None:
    if image.exists():
        return
    size_bytes = size_bytes or image_size_bytes(shutil.disk_usage(image.parent).free)
    if size_bytes < limits.POOL_BYTES_MIN:
        raise Unavailable(
            f"{image.parent} has too little free space for a disk pool",
            code="disk_pool_full",
            hint=f"free some, or choose another data directory (at least {limits.POOL_BYTES_MIN // limits.GIB} GiB)",
        )
    unfinished = image.with_suffix(".img.tmp")
    unfinished.unlink(missing_ok=True)
    with open(unfinished, "xb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.truncate(size_bytes)
    # One copy of metadata: a second one on the same disk under the image costs writes and saves little.
    spawn.run(["mkfs.btrfs", "--quiet", "--metadata", "single", "--data", "single", "--label", "atoll", unfinished])
    os.rename(unfinished, image)


def _mount(image: Path, root: Path) -> None:
    spawn.run(["mount", "-t", "btrfs", "-o", f"loop,{MOUNT_OPTIONS}", image, root])
    for device in _loop_devices(image):
        # Direct I/O keeps the pool out of the page cache a second time. Where it is not to be had we go on without.
        spawn.run(["losetup", "--direct-io=on", device], check=False)


def _loop_devices(image: Path) -> list[str]:
    return spawn.run(["losetup", "--noheadings", "--output", "NAME", "--associated", image]).text.split()


def _loop_free(image: Path) -> None:
    # A device that `mount` attached goes by itself, and detaching marks one that an interrupted mount left so that it
    # does. It may take longer than we wait: a process with a mount namespace of its own (a build, a sandbox that is
    # just starting) can hold a copy of the mount. The kernel then frees the device with the last such copy.
    until = time.monotonic() + limits.LOOP_FREE_S_MAX
    while (devices := _loop_devices(image)) and time.monotonic() < until:
        for device in devices:
            spawn.run(["losetup", "--detach", device], check=False)
        time.sleep(limits.CLEANED_POLL_S)
