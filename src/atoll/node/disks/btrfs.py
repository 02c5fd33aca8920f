"""Btrfs by system call: subvolumes, snapshots, quotas and their use, without the btrfs program.

Every function takes a path, blocks for milliseconds and raises plain OSError, as system calls do; `pool` gives those
errors their meaning. Struct layouts and numbers are those of the kernel's `uapi/linux/btrfs.h` and `btrfs_tree.h`.

Quotas: "simple" ones (kernel 6.7) charge an extent to the subvolume that wrote it, for ever, and cost nothing at
commit. Classic ones walk back references. What is exclusive to a subvolume is capped in both: with simple quotas it is
what the subvolume wrote, with classic ones what it does not share with its template.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from atoll.model import limits

SUBVOLUME_INODE = 256  # the root directory of every subvolume has this inode number

_MAGIC = 0x94
_READ, _WRITE = 2, 1


def _ioctl_number(direction: int, number: int, size_bytes: int) -> int:
    return direction << 30 | size_bytes << 16 | _MAGIC << 8 | number


_ARGS_BYTES = 4096
_SYNC = _ioctl_number(0, 8, 0)
_SNAP_DESTROY = _ioctl_number(_WRITE, 15, _ARGS_BYTES)
_TREE_SEARCH = _ioctl_number(_READ | _WRITE, 17, _ARGS_BYTES)
_INO_LOOKUP = _ioctl_number(_READ | _WRITE, 18, _ARGS_BYTES)
_SNAP_CREATE_V2 = _ioctl_number(_WRITE, 23, _ARGS_BYTES)
_SUBVOL_CREATE_V2 = _ioctl_number(_WRITE, 24, _ARGS_BYTES)
_SUBVOL_GETFLAGS = _ioctl_number(_READ, 25, 8)
_SUBVOL_SETFLAGS = _ioctl_number(_WRITE, 26, 8)
_FS_INFO = _ioctl_number(_READ, 31, 1024)
_QUOTA_CTL = _ioctl_number(_READ | _WRITE, 40, 16)
_QGROUP_CREATE = _ioctl_number(_WRITE, 42, 16)
_QGROUP_LIMIT = _ioctl_number(_READ, 43, 48)
_GET_SUBVOL_INFO = _ioctl_number(_READ, 60, 504)

_FILE_GETFLAGS, _FILE_SETFLAGS = 0x80086601, 0x40086602  # of every filesystem: FS_IOC_GETFLAGS, FS_IOC_SETFLAGS
_FILE_NOT_COPIED = 0x00800000

_FLAG_READ_ONLY = 1 << 1
_QUOTA_ENABLE, _QUOTA_ENABLE_SIMPLE = 1, 4
_LIMIT_MAX_EXCLUSIVE = 1 << 1
_NO_LIMIT = 2**64 - 1

_ROOT_TREE = 1
_ROOT_ITEM_KEY, _ROOT_REF_KEY = 132, 156

_VOL_ARGS_V2 = struct.Struct("=qQQ32x4040s")
_VOL_ARGS = struct.Struct("=q4088s")
_SEARCH_KEY = struct.Struct("=QQQQQQQIIII32x")
_SEARCH_HEADER = struct.Struct("=QQQII")
_LOOKUP = struct.Struct("=QQ4080s")
_LIMIT = struct.Struct("=QQQQQQ")
_ROOT_REF = struct.Struct("=QQH")
_INFO = struct.Struct("=Q256x32x16s32xQ152x")  # id, uuid, the transaction of the last change to a file in it
_SUBVOLUME_ID_MIN = 256

QuotaMode = Literal["simple", "classic", "off"]


class Child(NamedTuple):
    """A subvolume inside another one."""

    id: int
    directory: str  # relative to the parent subvolume, "" for its root
    name: str


def is_btrfs(path: Path) -> bool:
    """Whether `path` lies on a btrfs: only there does FS_INFO answer."""
    with _opened(path) as fd:
        try:
            _call(fd, _FS_INFO, bytes(1024))
        except OSError as error:
            if error.errno in (errno.ENOTTY, errno.EINVAL, errno.EOPNOTSUPP):
                return False
            raise
    return True


def is_subvolume(path: Path) -> bool:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return found.st_ino == SUBVOLUME_INODE and os.path.isdir(path) and is_btrfs(path)


def subvolume_create(path: Path) -> None:
    with _opened(path.parent) as parent:
        _call(parent, _SUBVOL_CREATE_V2, _VOL_ARGS_V2.pack(0, 0, 0, _name(path)))


def snapshot_create(source: Path, target: Path, *, read_only: bool = False) -> None:
    """Make `target` a snapshot of the subvolume `source`; both are on the same filesystem."""
    flags = _FLAG_READ_ONLY if read_only else 0
    with _opened(source) as source_fd, _opened(target.parent) as parent:
        _call(parent, _SNAP_CREATE_V2, _VOL_ARGS_V2.pack(source_fd, 0, flags, _name(target)))


def subvolume_delete(path: Path) -> None:
    """Remove a subvolume and those inside it. The kernel frees the space in the background (`wait_cleaned`)."""
    with _opened(path.parent) as parent:
        _delete_at(parent, path.name, depth=0)


def subvolume_id(path: Path) -> int:
    with _opened(path) as fd:
        return _subvolume_id(fd)


def content_mark(path: Path) -> str:
    """Which subvolume this is, and as of which change: another one, or one that was written to, has another mark.

    Snapshots that are taken of it, a move, and a change of its flags leave the mark alone.
    """
    with _opened(path) as fd:
        _, uuid, changed = _INFO.unpack(_call(fd, _GET_SUBVOL_INFO, bytes(_INFO.size)))
    return f"{uuid.hex()}:{changed}"


def read_only_set(path: Path, read_only: bool) -> None:
    with _opened(path) as fd:
        _read_only_set(fd, read_only)


def is_read_only(path: Path) -> bool:
    with _opened(path) as fd:
        return bool(_flags(fd) & _FLAG_READ_ONLY)


def quota_mode(path: Path) -> QuotaMode:
    try:
        mode = (_sysfs(path) / "qgroups/mode").read_text().strip()
    except FileNotFoundError:
        # The file `mode` is as old as simple quotas; without it the folder alone says that classic ones are on.
        return "classic" if (_sysfs(path) / "qgroups").is_dir() else "off"
    return "simple" if mode == "squota" else "classic"


def quota_enable(path: Path) -> QuotaMode:
    """Turn quotas on, the simple ones where the kernel has them; leaves alone what is already on."""
    mode = quota_mode(path)
    if mode != "off":
        return mode
    with _opened(path) as fd:
        try:
            _call(fd, _QUOTA_CTL, struct.pack("=QQ", _QUOTA_ENABLE_SIMPLE, 0))
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
            _call(fd, _QUOTA_CTL, struct.pack("=QQ", _QUOTA_ENABLE, 0))
    return quota_mode(path)


def quota_limit(path: Path, bytes_max: int) -> None:
    """Cap what the subvolume at `path` may hold of its own; 0 takes the cap away. Beyond it writes fail with EDQUOT.

    Asked of the folder that it lies in: asked of itself, the change of a cap that is reached would be over the cap.
    """
    group = subvolume_id(path)
    with _opened(path.parent) as fd:
        _call(fd, _QGROUP_LIMIT, _LIMIT.pack(group, _LIMIT_MAX_EXCLUSIVE, 0, bytes_max or _NO_LIMIT, 0, 0))


def quota_forget(path: Path, id_: int) -> bool:
    """Drop the accounting record of a deleted subvolume on the filesystem of `path`; False if it is still in use."""
    with _opened(path) as fd:
        try:
            _call(fd, _QGROUP_CREATE, struct.pack("=QQ", 0, id_))
        except OSError as error:
            if error.errno == errno.EBUSY:
                return False
            if error.errno not in (errno.ENOENT, errno.ENOTCONN):
                raise
    return True


def quota_sweep(path: Path) -> int:
    """Drop the simple quotas' records of subvolumes that are gone, and say how many they were.

    The kernel does so itself, but not for one whose extents were still in use elsewhere when it went; such a record
    stays after the last of them, with nothing in it (seen on 6.18).
    """
    dropped = 0
    if quota_mode(path) != "simple":
        return dropped
    for group in (_sysfs(path) / "qgroups").glob("0_*"):
        id_ = int(group.name.removeprefix("0_"))
        with contextlib.suppress(FileNotFoundError):  # it has gone by itself
            empty = int((group / "exclusive").read_text()) == int((group / "referenced").read_text()) == 0
            if empty and id_ >= _SUBVOLUME_ID_MIN and not subvolume_exists(path, id_):
                dropped += quota_forget(path, id_)
    return dropped


def usage_bytes(path: Path) -> int:
    """What the subvolume holds of its own, with what is on its way to the disk. Quotas must be on."""
    group = _sysfs(path) / "qgroups" / f"0_{subvolume_id(path)}"
    return sum(int((group / name).read_text()) for name in ("exclusive", "rsv_data"))


def sync(path: Path) -> None:
    with _opened(path) as fd:
        fcntl.ioctl(fd, _SYNC)


def subvolume_exists(path: Path, id_: int) -> bool:
    """Whether a subvolume's tree is still there on the filesystem of `path`, visible or waiting to be cleaned."""
    with _opened(path) as fd:
        return any(True for _ in _search(fd, id_, _ROOT_ITEM_KEY))


def wait_cleaned(path: Path, ids: list[int], timeout_s: float = limits.HELPER_S_MAX) -> bool:
    """Wait until the kernel has freed the deleted subvolumes `ids`; False if it had not within `timeout_s`."""
    until = time.monotonic() + timeout_s
    sync(path)  # the cleaner starts at a commit
    while any(subvolume_exists(path, id_) for id_ in ids):
        if time.monotonic() > until:
            return False
        time.sleep(limits.CLEANED_POLL_S)
    sync(path)  # the space is free from the next commit on
    return True


# --- the parts --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _opened(path: Path | str, at: int | None = None) -> Iterator[int]:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, dir_fd=at)
    try:
        yield fd
    finally:
        os.close(fd)


def _call(fd: int, request: int, args: bytes) -> bytes:
    buffer = bytearray(args)  # Python takes at most 1 KiB in an immutable argument
    fcntl.ioctl(fd, request, buffer)
    return bytes(buffer)


def _name(path: Path) -> bytes:
    name = os.fsencode(path.name)
    if not name or len(name) > limits.FILE_NAME_BYTES_MAX:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path))
    return name


def change_in_place(fd: int) -> None:
    """Have a file that is empty still changed where it is, and not copied on write. OSError where that is no choice."""
    (old,) = struct.unpack("=q", _call(fd, _FILE_GETFLAGS, bytes(8)))
    _call(fd, _FILE_SETFLAGS, struct.pack("=q", old | _FILE_NOT_COPIED))


def _flags(fd: int) -> int:
    (flags,) = struct.unpack("=Q", _call(fd, _SUBVOL_GETFLAGS, bytes(8)))
    return int(flags)


def _read_only_set(fd: int, read_only: bool) -> None:
    old = _flags(fd)
    new = old | _FLAG_READ_ONLY if read_only else old & ~_FLAG_READ_ONLY
    if new != old:
        _call(fd, _SUBVOL_SETFLAGS, struct.pack("=Q", new))


def _delete_at(parent: int, name: str, depth: int) -> None:
    # A guest cannot make subvolumes, so the nested case is rare and is looked for only when the kernel objects.
    args = _VOL_ARGS.pack(0, os.fsencode(name))
    try:
        _call(parent, _SNAP_DESTROY, args)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY or depth >= limits.SUBVOLUME_DEPTH_MAX:
            raise
        with _opened(name, at=parent) as fd:
            _read_only_set(fd, False)
            for child in _children(fd):
                with _walked(fd, child.directory) as directory:
                    _delete_at(directory, child.name, depth + 1)
        _call(parent, _SNAP_DESTROY, args)


@contextlib.contextmanager
def _walked(fd: int, relative: str) -> Iterator[int]:
    """Open a folder below `fd` one component at a time, so that no link can lead out."""
    with contextlib.ExitStack() as opened:
        for part in Path(relative).parts:
            fd = opened.enter_context(_opened(part, at=fd))
        yield fd


def _children(fd: int) -> list[Child]:
    found = []
    for id_, item in _search(fd, _subvolume_id(fd), _ROOT_REF_KEY):
        directory_id, _, name_bytes = _ROOT_REF.unpack_from(item)
        name = os.fsdecode(item[_ROOT_REF.size : _ROOT_REF.size + name_bytes])
        found.append(Child(id_, _directory(fd, directory_id), name))
    return found


def _subvolume_id(fd: int) -> int:
    answer = _call(fd, _INO_LOOKUP, _LOOKUP.pack(0, SUBVOLUME_INODE, b""))
    return int(_LOOKUP.unpack(answer)[0])


def _directory(fd: int, inode: int) -> str:
    answer = _call(fd, _INO_LOOKUP, _LOOKUP.pack(0, inode, b""))
    return os.fsdecode(_LOOKUP.unpack(answer)[2].split(b"\0", 1)[0])


def _search(fd: int, object_id: int, key_type: int) -> Iterator[tuple[int, bytes]]:
    """The items (key offset, bytes) of one object and type in the root tree."""
    offset = 0
    while True:
        key = _SEARCH_KEY.pack(
            _ROOT_TREE,
            object_id,
            object_id,
            offset,
            _NO_LIMIT,
            0,
            _NO_LIMIT,
            key_type,
            key_type,
            limits.SEARCH_ITEMS,
            0,
        )
        data = _call(fd, _TREE_SEARCH, key.ljust(_ARGS_BYTES, b"\0"))
        (count,) = struct.unpack_from("=I", data, 64)
        at = _SEARCH_KEY.size
        for _ in range(count):
            _, _, offset, _, length = _SEARCH_HEADER.unpack_from(data, at)
            at += _SEARCH_HEADER.size
            yield offset, data[at : at + length]
            at += length
        if not count or offset == _NO_LIMIT:
            return
        offset += 1


def _sysfs(path: Path) -> Path:
    with _opened(path) as fd:
        info = _call(fd, _FS_INFO, bytes(1024))
    text = info[16:32].hex()
    return Path("/sys/fs/btrfs", f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")
