"""Items to a disk and a memory: writes inside one folder and nowhere else, whoever wrote the file.

Everything is made with a name of one component, relative to the descriptor of a folder that was made here a moment ago,
and must not exist yet. No link is ever followed. Rights and owners are put on when a thing is complete, so that nothing
can be reached through it before.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from atoll.model.errors import OutOfSpace
from atoll.node.disks.pool import is_full
from atoll.node.snapshotfile import items
from atoll.node.snapshotfile.items import Extent, Fifo, File, Folder, Hardlink, Head, Item, Memory, Symlink, Up

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# What the kernel says about a tree that cannot be: a name twice, a link to nothing, an attribute that makes no sense.
_FAULTS_OF_THE_FILE = {
    errno.EEXIST,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EINVAL,
    errno.ENAMETOOLONG,
    errno.EMLINK,
    errno.ELOOP,
    errno.EPERM,
    errno.EFBIG,
    errno.E2BIG,
    errno.ERANGE,
    errno.EOVERFLOW,
    errno.EOPNOTSUPP,
}


class Unpacker:
    """Puts a disk into a folder that is empty and, where one is given, a memory into another.

    It takes items that a `items.Reader` let through, in their order. Blocks; meant for a thread.
    """

    def __init__(self, disk: Path, memory: Path | None) -> None:
        self._memory_folder = memory
        self._root = os.open(disk, _FOLDER)
        self._open: list[tuple[int, Folder]] = []
        self._file: tuple[int, File] | None = None
        self._at = 0
        self._memory: IO[bytes] | None = None
        self._memory_hash = hashlib.sha256()
        self._memory_digests: dict[str, str] = {}
        self._memory_name = ""

    def take(self, item: Item | bytes) -> None:
        with _meaning():
            if isinstance(item, bytes):
                self._data(item)
            elif isinstance(item, Extent):
                self._at = item.offset
            else:
                self._file_close()
                self._make(item)

    def memory_digests(self) -> dict[str, str]:
        """The SHA-256 of each file of the memory, of what was really written."""
        return self._memory_digests

    def close(self) -> None:
        """Let go of everything; what was made stays, and is the caller's to remove if it is not complete."""
        if self._file is not None:
            os.close(self._file[0])
            self._file = None
        for fd, _ in self._open:
            os.close(fd)
        self._open.clear()
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def _make(self, item: Item) -> None:
        match item:
            case Folder():
                self._folder(item)
            case Up():
                fd, folder = self._open.pop()
                try:
                    _finish(fd, folder)
                finally:
                    os.close(fd)
            case File():
                fd = os.open(item.name, _NEW, 0o600, dir_fd=self._here)
                self._file = fd, item
                os.ftruncate(fd, item.size)
            case Hardlink():
                self._hardlink(item)
            case Symlink():
                os.symlink(item.target, item.name, dir_fd=self._here)
                _owned(item, self._here)
            case Fifo():
                os.mkfifo(item.name, 0o600, dir_fd=self._here)
                _owned(item, self._here)
                os.chmod(item.name, item.mode, dir_fd=self._here)  # made here a moment ago: it is no link
                os.utime(item.name, ns=(item.mtime_ns, item.mtime_ns), dir_fd=self._here, follow_symlinks=False)
            case Memory():
                self._memory_begin(item.name)
            case Head() | items.End() | Extent():
                pass

    @property
    def _here(self) -> int:
        return self._open[-1][0]

    def _folder(self, folder: Folder) -> None:
        if not self._open:
            self._open.append((os.dup(self._root), folder))
            return
        os.mkdir(folder.name, 0o700, dir_fd=self._here)
        self._open.append((os.open(folder.name, _FOLDER, dir_fd=self._here), folder))

    def _data(self, data: bytes) -> None:
        if self._memory_name:
            self._memory_hash.update(data)
            if self._memory is not None:
                self._memory.write(data)
            return
        assert self._file is not None
        fd, view = self._file[0], memoryview(data)
        while view:
            written = os.pwrite(fd, view, self._at)
            self._at += written
            view = view[written:]

    def _file_close(self) -> None:
        if self._file is not None:
            fd, file = self._file
            self._file = None
            try:
                _finish(fd, file)
            finally:
                os.close(fd)
        self._memory_close()

    def _memory_begin(self, name: str) -> None:
        self._memory_name, self._memory_hash = name, hashlib.sha256()
        if self._memory_folder is not None:
            self._memory = os.fdopen(os.open(self._memory_folder / name, _NEW, 0o600), "wb")

    def _memory_close(self) -> None:
        if not self._memory_name:
            return
        self._memory_digests[self._memory_name] = self._memory_hash.hexdigest()
        self._memory_name = ""
        if self._memory is not None:
            memory, self._memory = self._memory, None
            memory.close()

    def _hardlink(self, link: Hardlink) -> None:
        *folders, name = items.target_parts(link.target)
        with _walked(self._root, folders) as folder:
            if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise items.unsafe("a hard link leads to what is no file")
            os.link(name, link.name, src_dir_fd=folder, dst_dir_fd=self._here, follow_symlinks=False)


def _finish(fd: int, item: Folder | File) -> None:
    """Owner, rights, attributes and time of what is complete. In this order: a change of owner takes rights away."""
    os.fchown(fd, item.uid, item.gid)
    os.fchmod(fd, item.mode)
    for name, value in item.xattrs.items():
        os.setxattr(fd, name, value)
    os.utime(fd, ns=(item.mtime_ns, item.mtime_ns))


def _owned(item: Symlink | Fifo, folder: int) -> None:
    os.chown(item.name, item.uid, item.gid, dir_fd=folder, follow_symlinks=False)
    os.utime(item.name, ns=(item.mtime_ns, item.mtime_ns), dir_fd=folder, follow_symlinks=False)


@contextmanager
def _walked(root: int, folders: list[bytes]) -> Iterator[int]:
    """A folder below the root, opened one component at a time."""
    fd = os.dup(root)
    try:
        for name in folders:
            below = os.open(name, _FOLDER, dir_fd=fd)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _meaning() -> Iterator[None]:
    """Whose fault it is what the kernel refuses: the file's, or that of a host without room."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise OutOfSpace("there is no room for the snapshot", code="disk_pool_full") from error
        if error.errno in _FAULTS_OF_THE_FILE:
            raise items.unsafe(f"something in it cannot be made: {error.strerror}") from error
        raise
