"""What differs between two disks: files added, changed and removed.

What is on these disks was put there by a guest: names are bytes, links lead anywhere. Nothing is ever followed; each
folder is opened relative to the one above it.
"""

from __future__ import annotations

import heapq
import itertools
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from atoll.model import limits
from atoll.model.errors import TooLarge
from atoll.node.disks.folders import Names
from atoll.wire.node import DiskChange, DiskChanges

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}


@dataclass(frozen=True, slots=True)
class _Entry:
    name: bytes
    status: os.stat_result


def changes(before: Path, after: Path, look: Callable[[], None]) -> DiskChanges:
    """The differences, as many as one answer may hold. `look` is called in each folder, and may end it."""
    items: list[DiskChange] = []
    left_bytes = limits.DIFF_PATHS_BYTES_MAX
    for one in differences(before, after, look):
        left_bytes -= len(one.path)
        if len(items) == limits.DIFF_ENTRIES_MAX or left_bytes < 0:
            return DiskChanges(items, True)
        items.append(one)
    return DiskChanges(items, False)


def differences(before: Path, after: Path, look: Callable[[], None] = lambda: None) -> Iterator[DiskChange]:
    """Every difference, in the order of names. A folder that is new or gone is named, and all that is in it too; one
    that is too deep to be looked into is named as changed, because something in it may have.
    """
    with _Opened(os.fsencode(before), None) as old, _Opened(os.fsencode(after), None) as new:
        yield from _Comparison(look).between(old.fd, new.fd, b"", 0)


class _Comparison:
    """One comparison of two trees, and how much of their files it may still read."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self._left_bytes = limits.DIFF_READ_BYTES_MAX
        self._names = Names(_too_large)

    def between(self, old: int | None, new: int | None, folder: bytes, depth: int) -> Iterator[DiskChange]:
        self._look()
        if depth > limits.TREE_DEPTH_MAX:
            return
        with self._names.of(old) as olds, self._names.of(new) as news:
            for name, in_old, in_new in _merged(olds, news):
                was = _entry(name, old) if in_old else None
                now = _entry(name, new) if in_new else None
                path = folder + b"/" + name
                if (
                    was is None
                    or now is None
                    or self._changed(old, new, was, now)
                    or (depth == limits.TREE_DEPTH_MAX and stat.S_ISDIR(now.status.st_mode))
                ):
                    yield _change(path, was, now)
                yield from self._inside(old, new, was, now, path, depth)

    def _inside(
        self, old: int | None, new: int | None, was: _Entry | None, now: _Entry | None, path: bytes, depth: int
    ) -> Iterator[DiskChange]:
        was_folder = was is not None and stat.S_ISDIR(was.status.st_mode)
        now_folder = now is not None and stat.S_ISDIR(now.status.st_mode)
        if not was_folder and not now_folder:
            return
        name = path.rpartition(b"/")[2]
        with _Opened(name if was_folder else None, old) as one, _Opened(name if now_folder else None, new) as other:
            yield from self.between(one.fd, other.fd, path, depth + 1)

    def _changed(self, old: int | None, new: int | None, was: _Entry, now: _Entry) -> bool:
        """What is the same but for the time of its change, which nobody can set, may have had its other time set back:
        only a look at its content tells. What is too large for that counts as changed.
        """
        if (was.status.st_ino, was.status.st_ctime_ns) == (now.status.st_ino, now.status.st_ctime_ns):
            return False  # a snapshot keeps both
        if _told(was.status) != _told(now.status):
            return True
        assert old is not None
        assert new is not None
        if _attributes(old, was.name) != _attributes(new, now.name):
            return True
        if stat.S_ISLNK(now.status.st_mode):
            return os.readlink(was.name, dir_fd=old) != os.readlink(now.name, dir_fd=new)
        return stat.S_ISREG(now.status.st_mode) and not self._same_content(old, new, now)

    def _same_content(self, old: int, new: int, entry: _Entry) -> bool:
        if entry.status.st_size > self._left_bytes:
            return False
        self._left_bytes -= entry.status.st_size
        with _file(old, entry.name) as one, _file(new, entry.name) as other:
            while part := one.read(limits.MIB):
                if part != other.read(len(part)):
                    return False
            return not other.read(1)


def _told(status: os.stat_result) -> tuple[int, ...]:
    """What a file says of itself, but for what lies in it. That something in a folder came or went is said there."""
    own = (status.st_mode, status.st_uid, status.st_gid)
    return own if stat.S_ISDIR(status.st_mode) else (*own, status.st_size, status.st_mtime_ns, status.st_rdev)


def _attributes(folder: int, name: bytes) -> dict[str, bytes]:
    path = b"/proc/self/fd/%d/%s" % (folder, name)
    names = os.listxattr(path, follow_symlinks=False)
    return {one: os.getxattr(path, one, follow_symlinks=False) for one in names}


def _file(folder: int, name: bytes) -> BinaryIO:
    """A regular file, whose disk nobody changes."""
    return open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder), "rb")


class _Opened:
    """A folder, or none; its descriptor as long as the block lasts."""

    def __init__(self, name: bytes | None, at: int | None) -> None:
        self._name = name
        self._at = at
        self.fd: int | None = None

    def __enter__(self) -> _Opened:
        if self._name is not None:
            self.fd = os.open(self._name, _FOLDER, dir_fd=self._at)
        return self

    def __exit__(self, *_: object) -> None:
        if self.fd is not None:
            os.close(self.fd)


def _merged(olds: Sequence[bytes], news: Sequence[bytes]) -> Iterator[tuple[bytes, bool, bool]]:
    """Each name of two lists that are in order, and in which of them it is."""
    both = heapq.merge(((name, False) for name in olds), ((name, True) for name in news))
    for name, sides in itertools.groupby(both, lambda one: one[0]):
        found = {is_new for _, is_new in sides}
        yield name, False in found, True in found


def _entry(name: bytes, folder: int | None) -> _Entry:
    assert folder is not None, "a name comes out of a folder"
    return _Entry(name, os.stat(name, dir_fd=folder, follow_symlinks=False))


def _too_large(why: str) -> TooLarge:
    hint = "Spread them over more folders."
    return TooLarge(f"the disk is too large to be compared: {why}", code="disk_too_large", hint=hint)


def _change(path: bytes, was: _Entry | None, now: _Entry | None) -> DiskChange:
    entry = now or was
    assert entry is not None
    change = "changed" if was and now else ("added" if now else "removed")
    kind = _KINDS.get(stat.S_IFMT(entry.status.st_mode), "other")
    return DiskChange(os.fsdecode(path), change, kind, entry.status.st_size)
