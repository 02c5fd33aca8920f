"""A disk and a memory to items: walks a read-only disk that a guest has filled, and follows nothing.

Everything that a program inside can see of its files is kept: names (bytes), owners, rights, times, attributes, hard
links, holes. Devices and sockets are left out: the first are the sandbox's `/dev`, which is not on its disk, and the
second belong to programs that are not there any more.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from atoll.model import limits
from atoll.node.disks.folders import Names
from atoll.node.snapshotfile import items
from atoll.node.snapshotfile.items import Extent, Fifo, File, Folder, Hardlink, Head, Memory, Symlink, Up

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DATA_BYTES = limits.SNAPSHOT_BLOCK_BYTES // 4
_TIME_NS_MAX = 2**63 - 1


@dataclass(slots=True)
class _Shared:
    """A file with several names: where its first one is, and how many are still to come."""

    path: bytes
    left: int


@dataclass(slots=True)
class _Walk:
    shared: dict[int, _Shared] = field(default_factory=dict)
    shared_bytes: int = 0
    entries: int = 0
    names: Names = field(default_factory=lambda: Names(items.too_large))

    def count(self) -> None:
        self.entries += 1
        if self.entries > limits.SNAPSHOT_ENTRIES_MAX:
            raise items.too_large(f"more than {limits.SNAPSHOT_ENTRIES_MAX} files")

    def first_name(self, status: os.stat_result, path: bytes) -> bytes | None:
        """The name under which this file has come already, if it has."""
        if status.st_nlink < 2:
            return None
        known = self.shared.get(status.st_ino)
        if known is None:
            self._remember(status, path)
            return None
        known.left -= 1
        if known.left == 0:
            del self.shared[status.st_ino]
            self.shared_bytes -= len(known.path)
        return known.path

    def _remember(self, status: os.stat_result, path: bytes) -> None:
        self.shared[status.st_ino] = _Shared(path, status.st_nlink - 1)
        self.shared_bytes += len(path)
        if self.shared_bytes > limits.SNAPSHOT_SHARED_BYTES_MAX:
            raise items.too_large("too many files have several names")


def packed(head: Head, disk: Path, memory: Path) -> Iterator[bytes]:
    """All of a snapshot as encoded items. Blocks; meant for a thread."""
    yield items.encode(head)
    root = os.open(disk, _FOLDER)
    try:
        yield from _folder(root, b"", b"", _Walk(), 1)
    finally:
        os.close(root)
    for one in head.memory:
        yield items.encode(Memory(one.name))
        yield from _memory(memory / one.name)
    yield items.encode(items.End())


def _folder(fd: int, name: bytes, path: bytes, walk: _Walk, depth: int) -> Iterator[bytes]:
    if depth > limits.TREE_DEPTH_MAX:
        raise items.too_large(f"folders lie more than {limits.TREE_DEPTH_MAX} deep")
    walk.count()
    status = os.fstat(fd)
    yield items.encode(Folder(name, *_rights(status), _xattrs(fd)))
    with walk.names.of(fd) as names:
        for below in names:
            yield from _entry(fd, below, path + b"/" + below if path else below, walk, depth)
    yield items.encode(Up())


def _entry(folder: int, name: bytes, path: bytes, walk: _Walk, depth: int) -> Iterator[bytes]:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFDIR:
        fd = os.open(name, _FOLDER, dir_fd=folder)
        try:
            yield from _folder(fd, name, path, walk, depth + 1)
        finally:
            os.close(fd)
    elif kind == stat.S_IFREG:
        walk.count()
        first = walk.first_name(status, path)
        if first is not None:
            yield items.encode(Hardlink(name, first))
        else:
            yield from _file(folder, name)
    elif kind == stat.S_IFLNK:
        walk.count()
        target = os.readlink(name, dir_fd=folder)
        yield items.encode(Symlink(name, target, status.st_uid, status.st_gid, _time(status)))
    elif kind == stat.S_IFIFO:
        walk.count()
        yield items.encode(Fifo(name, *_rights(status)))


def _file(folder: int, name: bytes) -> Iterator[bytes]:
    fd = os.open(name, _FILE, dir_fd=folder)
    try:
        status = os.fstat(fd)
        yield items.encode(File(name, *_rights(status), _xattrs(fd), status.st_size))
        for start, end in _extents(fd, status.st_size):
            yield items.encode(Extent(start, end - start))
            yield from _bytes(fd, start, end)
    finally:
        os.close(fd)


def _extents(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Where there is something in a file; between that are holes."""
    at = 0
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole from here on
                return
            raise
        start -= start % items.EXTENT_ALIGN_BYTES
        at = min(os.lseek(fd, start, os.SEEK_HOLE), size)
        at += -at % items.EXTENT_ALIGN_BYTES
        yield start, min(at, size)


def _bytes(fd: int, start: int, end: int) -> Iterator[bytes]:
    while start < end:
        data = os.pread(fd, min(_DATA_BYTES, end - start), start)
        if not data:
            raise OSError(errno.EIO, "a file of a snapshot is shorter than it was")
        start += len(data)
        yield items.encode_data(data)


def _memory(path: Path) -> Iterator[bytes]:
    fd = os.open(path, _FILE)
    try:
        yield from _bytes(fd, 0, os.fstat(fd).st_size)
    finally:
        os.close(fd)


def _rights(status: os.stat_result) -> tuple[int, int, int, int]:
    return stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, _time(status)


def _time(status: os.stat_result) -> int:
    """A guest may set any time; one that no other system could take becomes the nearest that it can."""
    return max(-_TIME_NS_MAX, min(_TIME_NS_MAX, status.st_mtime_ns))


def _xattrs(fd: int) -> dict[bytes, bytes]:
    carried = [name for name in map(os.fsencode, os.listxattr(fd)) if items.xattr_carried(name)]
    return {name: os.getxattr(fd, name) for name in sorted(carried)}
