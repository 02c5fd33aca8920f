"""Opening what lies below one folder, whose tree strangers write to at the same time, and nothing anywhere else.

The kernel itself walks the path and refuses each step that would leave the folder (openat2, RESOLVE_BENEATH), so it
does not matter what a name is turned into in the meantime. What is opened is looked at before it is used: only regular
files and folders are, because opening a pipe or a device does things.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from pathlib import Path

from atoll.model import limits

_OPENAT2 = 437  # the same number on every architecture
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x01, 0x02, 0x04, 0x08
_RENAME_NOREPLACE, _RENAME_EXCHANGE = 1, 2
_AGAIN_MAX = 64  # a step up that meets a rename has to be tried again; somebody may rename without end

_libc = ctypes.CDLL(None, use_errno=True)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def root_open(path: Path) -> int:
    """The folder that nothing leads out of."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def looked_at(root: int, path: str, *, follow: bool) -> int:
    """A descriptor that says what is there and cannot do anything with it."""
    return _openat2(root, path, os.O_PATH | (0 if follow else os.O_NOFOLLOW))


def folder_open(root: int, path: str, *, links: bool = True) -> int:
    """Without `links`, none is followed, not even one that stays beneath."""
    return _openat2(root, path, os.O_RDONLY | os.O_DIRECTORY, 0 if links else _NO_SYMLINKS)


def regular_open(root: int, path: str) -> tuple[int, os.stat_result]:
    """A regular file to read. It is looked at first, and then that very file is opened, whatever its name is by now."""
    seen = looked_at(root, path, follow=True)
    try:
        found = os.fstat(seen)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return os.open(_itself(seen), os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY), found
    finally:
        os.close(seen)


def changed(fd: int, uid: int | None, gid: int | None, mode: int | None) -> None:
    """Give a file or folder, which may only have been looked at, other owners and rights."""
    if uid is not None or gid is not None:
        os.chown(_itself(fd), -1 if uid is None else uid, -1 if gid is None else gid)
    if mode is not None:
        os.chmod(_itself(fd), mode)


def named(fd: int, folder: int, name: str) -> None:
    """Give a file that has no name one."""
    os.link(_itself(fd), name, dst_dir_fd=folder, follow_symlinks=True)


def rename(source: int, source_name: str, target: int, target_name: str, *, overwrite: bool) -> None:
    _rename(source, source_name, target, target_name, 0 if overwrite else _RENAME_NOREPLACE)


def exchange(first: Path, second: Path) -> None:
    """Two names change what they stand for, at once."""
    _rename(-100, str(first), -100, str(second), _RENAME_EXCHANGE)


def _rename(source: int, source_name: str, target: int, target_name: str, flags: int) -> None:
    if _libc.renameat2(source, os.fsencode(source_name), target, os.fsencode(target_name), flags) != 0:
        raise _failure()


def _itself(fd: int) -> str:
    return f"/proc/self/fd/{fd}"


def _openat2(root: int, path: str, flags: int, refused: int = 0) -> int:
    how = _How(flags | os.O_CLOEXEC, 0, _NO_XDEV | _NO_MAGICLINKS | _BENEATH | refused)
    name = os.fsencode(path)
    if len(name) > limits.PATH_BYTES_MAX:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    for _ in range(_AGAIN_MAX):
        fd: int = _libc.syscall(_OPENAT2, root, name, ctypes.byref(how), ctypes.sizeof(how))
        if fd >= 0:
            return fd
        if ctypes.get_errno() != errno.EAGAIN:
            raise _failure()
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def _failure() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
