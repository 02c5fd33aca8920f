"""What differs between two disks: files added, changed and removed; and one file of a disk, opened safely.

What is on these disks was put there by a guest: names are bytes, links lead anywhere. Nothing is ever followed; each
folder is opened relative to the one above it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from atoll.model import limits
from atoll.model.errors import InvalidArgument, NotFound
from atoll.wire.node import DiskChange

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}


@dataclass(frozen=True, slots=True)
class _Entry:
    name: bytes
    status: os.stat_result


def differences(before: Path, after: Path) -> Iterator[DiskChange]:
    """Every difference, in the order of names. A folder that is new or gone is named, and all that is in it too."""
    with _Opened(os.fsencode(before), None) as old, _Opened(os.fsencode(after), None) as new:
        yield from _compare(old.fd, new.fd, b"", 0)


def _compare(old: int | None, new: int | None, folder: bytes, depth: int) -> Iterator[DiskChange]:
    if depth > limits.TREE_DEPTH_MAX:
        return
    olds, news = _entries(old), _entries(new)
    for name in sorted(olds.keys() | news.keys()):
        was, now = olds.get(name), news.get(name)
        path = folder + b"/" + name
        if was is None or now is None or _changed(was.status, now.status):
            yield _change(path, was, now)
        yield from _inside(old, new, was, now, path, depth)


def _inside(
    old: int | None, new: int | None, was: _Entry | None, now: _Entry | None, path: bytes, depth: int
) -> Iterator[DiskChange]:
    was_folder = was is not None and stat.S_ISDIR(was.status.st_mode)
    now_folder = now is not None and stat.S_ISDIR(now.status.st_mode)
    if not was_folder and not now_folder:
        return
    name = path.rpartition(b"/")[2]
    with _Opened(name if was_folder else None, old) as one, _Opened(name if now_folder else None, new) as other:
        yield from _compare(one.fd, other.fd, path, depth + 1)


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


def _entries(folder: int | None) -> dict[bytes, _Entry]:
    if folder is None:
        return {}
    with os.scandir(folder) as found:
        names = [os.fsencode(entry.name) for entry in found]
    return {name: _Entry(name, os.stat(name, dir_fd=folder, follow_symlinks=False)) for name in names}


def _changed(was: os.stat_result, now: os.stat_result) -> bool:
    if (was.st_ino, was.st_ctime_ns) == (now.st_ino, now.st_ctime_ns):
        return False  # a snapshot keeps both, and the kernel lets nobody set the second
    if (was.st_mode, was.st_uid, was.st_gid) != (now.st_mode, now.st_uid, now.st_gid):
        return True
    if stat.S_ISDIR(now.st_mode):
        return False  # that something in it came or went is said where it did
    return (was.st_size, was.st_mtime_ns) != (now.st_size, now.st_mtime_ns)


def _change(path: bytes, was: _Entry | None, now: _Entry | None) -> DiskChange:
    entry = now or was
    assert entry is not None
    change = "changed" if was and now else ("added" if now else "removed")
    kind = _KINDS.get(stat.S_IFMT(entry.status.st_mode), "other")
    return DiskChange(os.fsdecode(path), change, kind, entry.status.st_size)


def file_open(root: Path, path: str) -> int:
    """The descriptor of a regular file on a disk; a path that leads over a link is refused."""
    parts = PurePosixPath(path).parts[1:]
    if not path.startswith("/") or not parts or ".." in parts or "\0" in path:
        raise InvalidArgument(f"{path[:80]!r} is not the absolute path of a file", code="invalid_argument")
    folder = os.open(root, _FOLDER)
    try:
        for part in parts[:-1]:
            below = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = below
        fd = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        raise NotFound(f"there is no {path[:200]!r} in the snapshot", code="not_found") from None
    except OSError as error:
        raise InvalidArgument(f"{path[:200]!r} is not a file of its own", code="invalid_argument") from error
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise InvalidArgument(f"{path[:200]!r} is not a regular file", code="invalid_argument")
    return fd
