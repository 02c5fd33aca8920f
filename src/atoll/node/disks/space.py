"""How much of a disk is its own and how much it shares: what would be free again without it, and what would not.

The kernel says of each extent of a file whether something else refers to it (FIEMAP): a template, a sandbox, another
snapshot. What is on the disk was put there by a guest, so nothing is followed, and only regular files are opened.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from atoll.model import limits
from atoll.wire.node import Space

_FIEMAP = 0xC020660B
_HEAD = struct.Struct("=QQIIII")  # start, length, flags, extents that are there, room for extents, reserved
_EXTENT = struct.Struct("=QQQ16xI12x")  # where in the file, where on the disk, length, flags
_LAST, _UNKNOWN, _INLINE, _SHARED = 0x0001, 0x0002, 0x0200, 0x2000
_EXTENTS = 128  # in one answer
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def of_disk(root: Path, look: Callable[[], None] = lambda: None) -> Space:
    """Of all files below a folder that nobody writes to. `look` is called in each folder, and may end it."""
    fd = os.open(root, _FOLDER)
    try:
        return _of_folder(fd, 0, look)
    finally:
        os.close(fd)


def of_files(folder: Path) -> Space:
    """Of plain files that are shared by name, if at all, and never by content."""
    own = shared = 0
    for path in folder.iterdir():
        status = path.lstat()
        own, shared = (own + status.st_size, shared) if status.st_nlink == 1 else (own, shared + status.st_size)
    return Space(own, shared)


def _of_folder(folder: int, depth: int, look: Callable[[], None]) -> Space:
    look()
    own = shared = 0
    if depth > limits.TREE_DEPTH_MAX:
        return Space()
    with os.scandir(folder) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            is_folder = stat.S_ISDIR(status.st_mode)
            if not is_folder and not (stat.S_ISREG(status.st_mode) and status.st_blocks):
                continue
            fd = os.open(entry.name, _FOLDER if is_folder else _FILE, dir_fd=folder)
            try:
                inside = _of_folder(fd, depth + 1, look) if is_folder else _of_file(fd)
            finally:
                os.close(fd)
            own, shared = own + inside.own_bytes, shared + inside.shared_bytes
    return Space(own, shared)


def _of_file(fd: int) -> Space:
    own = shared = 0
    for length_bytes, flags in _extents(fd):
        if flags & _SHARED:
            shared += length_bytes
        elif not flags & (_UNKNOWN | _INLINE):  # what is small enough lies with the names, which have no size here
            own += length_bytes
    return Space(own, shared)


def _extents(fd: int) -> Iterator[tuple[int, int]]:
    """Length and flags of each piece of a file that is on the disk."""
    start = 0
    answer = bytearray(_HEAD.size + _EXTENTS * _EXTENT.size)
    while True:
        _HEAD.pack_into(answer, 0, start, 2**64 - 1 - start, 0, 0, _EXTENTS, 0)
        fcntl.ioctl(fd, _FIEMAP, answer)
        count = _HEAD.unpack_from(answer)[3]
        for index in range(count):
            at, _, length, flags = _EXTENT.unpack_from(answer, _HEAD.size + index * _EXTENT.size)
            yield length, flags
            start = at + length
            if flags & _LAST:
                return
        if not count:
            return
