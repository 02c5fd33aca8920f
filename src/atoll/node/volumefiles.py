"""The files of a volume, read and changed on the host while sandboxes may be at them: blocking, in small bounded steps.

Every path goes through `beneath`, so nothing here leaves the volume, and nothing but regular files and folders is
opened. A path of a caller has no `..`; links that stay inside are followed. Work that can be long comes as a generator,
so that whoever drives it can stop between two steps.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from atoll.model import limits
from atoll.node import beneath
from atoll.wire.volumes import Ownership, VolumeFile, VolumeListing

USUAL_OWNER = 1000  # the user `user` of every template
_FILE_MODE, _FOLDER_MODE = 0o644, 0o755
_TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink", stat.S_IFIFO: "fifo"}
_TYPES |= {stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}


@contextmanager
def opened(volume: Path) -> Iterator[int]:
    root = beneath.root_open(volume)
    try:
        yield root
    finally:
        os.close(root)


def inside(path: str) -> str:
    """A caller's path as one that begins at the volume's root; "." is the root itself."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if "\0" in path or ".." in parts:
        raise OSError(errno.EINVAL, "a path in a volume has no `..` and no zero byte")
    return "/".join(parts) or "."


def file_stat(volume: Path, path: str, *, follow: bool) -> VolumeFile:
    with opened(volume) as root, _looked_at(root, inside(path), follow=follow) as fd:
        return _described(inside(path), os.fstat(fd), fd)


def file_list(volume: Path, path: str, depth: int, items_max: int) -> VolumeListing:
    """Folders before what they hold; a folder that goes away meanwhile is left out."""
    found: list[VolumeFile] = []
    waiting = [(inside(path), 1)]
    with opened(volume) as root:
        while waiting:
            folder, level = waiting.pop(0)
            try:
                entries, more = _folder_entries(root, folder, items_max - len(found))
            except OSError:
                if level == 1:
                    raise
                continue
            found += entries
            if more:
                return VolumeListing(tuple(found), truncated=True)
            if level < depth:
                waiting += [(entry.path[1:], level + 1) for entry in entries if entry.type == "directory"]
    return VolumeListing(tuple(sorted(found, key=lambda entry: entry.path)), truncated=False)


def _folder_entries(root: int, folder: str, items_max: int) -> tuple[list[VolumeFile], bool]:
    fd = beneath.folder_open(root, folder)
    try:
        found: list[VolumeFile] = []
        with os.scandir(fd) as entries:
            for entry in entries:
                if len(found) >= items_max:
                    return found, True
                with suppress(OSError):  # gone, or something else by now
                    status = entry.stat(follow_symlinks=False)
                    target = os.readlink(entry.name, dir_fd=fd) if entry.is_symlink() else None
                    found.append(_facts(posixpath.join(folder, entry.name), status, target))
        return found, False
    finally:
        os.close(fd)


class Reading:
    """A file that is open, and the bytes of it that were asked for."""

    def __init__(self, volume: Path, path: str, offset: int, length: int | None) -> None:
        with opened(volume) as root:
            self._fd, found = beneath.regular_open(root, inside(path))
        self.file = _facts(inside(path), found)
        self._position = offset
        self._left = max(0, found.st_size - offset) if length is None else min(length, max(0, found.st_size - offset))

    def piece(self) -> bytes:
        """The next bytes; none at the end. A file that grows is read to where it ended."""
        data = os.pread(self._fd, min(self._left, limits.FRAME_BYTES_MAX), self._position) if self._left else b""
        self._position += len(data)
        self._left -= len(data)
        return data

    def close(self) -> None:
        os.close(self._fd)


class Writing:
    """A file on its way in. It has no name until it is whole, so a server that dies leaves nothing of it."""

    def __init__(self, volume: Path, path: str, ownership: Ownership, *, parents: bool, overwrite: bool) -> None:
        self._path = inside(path)
        self._overwrite = overwrite
        with opened(volume) as root:
            if parents:
                _folders_make(root, posixpath.dirname(self._path), Ownership())
            self._folder, self._name, old = _place(root, self._path)
        try:
            if old is not None and not overwrite:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            self._fd = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=self._folder)
            self._ownership = _as_usual(ownership, old, _FILE_MODE)
        except BaseException:
            os.close(self._folder)
            raise

    def add(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def commit(self) -> VolumeFile:
        wanted = self._ownership
        beneath.changed(self._fd, wanted.uid, wanted.gid, wanted.mode)
        temporary = f".atoll-{os.urandom(8).hex()}"
        beneath.named(self._fd, self._folder, temporary)
        try:
            beneath.rename(self._folder, temporary, self._folder, self._name, overwrite=self._overwrite)
        except BaseException:
            os.unlink(temporary, dir_fd=self._folder)
            raise
        return _facts(self._path, os.fstat(self._fd))

    def close(self) -> None:
        os.close(self._fd)
        os.close(self._folder)


def file_change(volume: Path, path: str, ownership: Ownership) -> VolumeFile:
    with opened(volume) as root, _looked_at(root, inside(path), follow=True) as fd:
        if stat.S_IFMT(os.fstat(fd).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
            raise OSError(errno.EINVAL, "not a file or a folder")
        beneath.changed(fd, ownership.uid, ownership.gid, ownership.mode)
        return _described(inside(path), os.fstat(fd), fd)


def directory_create(volume: Path, path: str, ownership: Ownership, *, parents: bool, exist_ok: bool) -> VolumeFile:
    name = inside(path)
    with opened(volume) as root:
        if parents:
            _folders_make(root, posixpath.dirname(name), Ownership())
        if not _folder_make(root, name, ownership) and not exist_ok:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        with _looked_at(root, name, follow=True) as fd:
            return _described(name, os.fstat(fd), fd)


def file_move(volume: Path, source: str, target: str, *, overwrite: bool, parents: bool) -> VolumeFile:
    with opened(volume) as root:
        if parents:
            _folders_make(root, posixpath.dirname(inside(target)), Ownership())
        with _parent(root, inside(source)) as (before, old_name), _parent(root, inside(target)) as (after, new_name):
            beneath.rename(before, old_name, after, new_name, overwrite=overwrite)
        with _looked_at(root, inside(target), follow=False) as fd:
            return _described(inside(target), os.fstat(fd), fd)


def file_remove(volume: Path, path: str, *, recursive: bool) -> Generator[None, None, None]:
    """One step for some hundred files. What is deep is first moved up: it costs no more descriptors than what is not.

    A folder that somebody goes on writing to is not emptied for ever: it ends with not_empty.
    """
    with opened(volume) as root, _parent(root, inside(path)) as (folder, name):
        if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=folder)
            return
        if recursive:
            yield from _emptied(folder, name)
        os.rmdir(name, dir_fd=folder)


def _emptied(folder: int, name: str) -> Iterator[None]:
    top = _own_folder(folder, name)
    try:
        for _ in range(limits.VOLUME_REMOVE_STEPS_MAX):
            removed, below = _files_removed(top)
            if not removed and not below:
                return
            yield
            for one in below:
                yield from _lifted(top, one)
    finally:
        os.close(top)


def _files_removed(folder: int) -> tuple[int, list[str]]:
    """Remove some hundred of what is no folder, and those folders that are empty; the others are named."""
    removed = 0
    below: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if removed + len(below) >= limits.VOLUME_STEP_ENTRIES:
                break
            with suppress(FileNotFoundError):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=folder)
                    removed += 1
                    continue
                try:
                    os.rmdir(entry.name, dir_fd=folder)
                    removed += 1
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY:
                        raise
                    below.append(entry.name)
    return removed, below


def _lifted(top: int, name: str) -> Iterator[None]:
    """Empty a folder of its files; folders in it go to the top, under names that are new there."""
    try:
        fd = _own_folder(top, name)
    except FileNotFoundError:
        return
    try:
        for _ in range(limits.VOLUME_REMOVE_STEPS_MAX):
            removed, below = _files_removed(fd)
            for one in below:
                with suppress(FileNotFoundError):
                    beneath.rename(fd, one, top, f".atoll-{os.urandom(8).hex()}", overwrite=False)
            if not removed and not below:
                return
            yield
    finally:
        os.close(fd)


def _own_folder(folder: int, name: str) -> int:
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)


# --- places -----------------------------------------------------------------------------------------------------------


@contextmanager
def _looked_at(root: int, path: str, *, follow: bool) -> Iterator[int]:
    fd = beneath.looked_at(root, path, follow=follow)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _parent(root: int, path: str) -> Iterator[tuple[int, str]]:
    """The folder of something and its name there; the root of a volume has neither."""
    folder, name = posixpath.split(path)
    if path == ".":
        raise OSError(errno.EINVAL, "that is the volume itself")
    fd = beneath.folder_open(root, folder or ".")
    try:
        yield fd, name
    finally:
        os.close(fd)


def _place(root: int, path: str) -> tuple[int, str, os.stat_result | None]:
    """Where a file is written, and what is there now. A link stays a link: what it leads to is written."""
    for _ in range(limits.LINKS_FOLLOWED_MAX):
        with _parent(root, path) as (folder, name):
            try:
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                return os.dup(folder), name, None
            if stat.S_ISLNK(found.st_mode):
                path = posixpath.join(posixpath.dirname(path), os.readlink(name, dir_fd=folder)).rstrip("/") or "/"
                continue
            if stat.S_ISDIR(found.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            return os.dup(folder), name, found
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _folders_make(root: int, path: str, ownership: Ownership) -> None:
    """A folder and those above it."""
    parts = path.split("/") if path not in ("", ".") else []
    for count in range(1, len(parts) + 1):
        _folder_make(root, "/".join(parts[:count]), ownership)


def _folder_make(root: int, path: str, ownership: Ownership) -> bool:
    """False if it was there."""
    if path == ".":
        return False
    with _parent(root, path) as (folder, name):
        try:
            os.mkdir(name, 0o700, dir_fd=folder)
        except FileExistsError:
            with _looked_at(root, path, follow=True) as fd:
                if not stat.S_ISDIR(os.fstat(fd).st_mode):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
            return False
        fd = _own_folder(folder, name)
        try:
            wanted = _as_usual(ownership, None, _FOLDER_MODE)
            beneath.changed(fd, wanted.uid, wanted.gid, wanted.mode)
        finally:
            os.close(fd)
    return True


def _as_usual(wanted: Ownership, old: os.stat_result | None, mode: int) -> Ownership:
    """What is not said is as it was, or as for a file that the sandbox's user makes."""
    usual = (USUAL_OWNER, USUAL_OWNER, mode) if old is None else (old.st_uid, old.st_gid, old.st_mode & 0o777)
    given = (wanted.uid, wanted.gid, wanted.mode)
    return Ownership(*(there if new is None else new for new, there in zip(given, usual, strict=True)))


def _described(path: str, found: os.stat_result, fd: int) -> VolumeFile:
    return _facts(path, found, os.readlink("", dir_fd=fd) if stat.S_ISLNK(found.st_mode) else None)


def _facts(path: str, found: os.stat_result, target: str | None = None) -> VolumeFile:
    path = "/" + inside(path) if path != "." else "/"
    return VolumeFile(
        path=path,
        name=posixpath.basename(path) or "/",
        type=_TYPES.get(stat.S_IFMT(found.st_mode), "unknown"),
        size=found.st_size,
        mode=stat.S_IMODE(found.st_mode),
        uid=found.st_uid,
        gid=found.st_gid,
        mtime_ns=_moment(found.st_mtime_ns),
        atime_ns=_moment(found.st_atime_ns),
        ctime_ns=_moment(found.st_ctime_ns),
        links=found.st_nlink,
        target=target,
    )


def _moment(time_ns: int) -> int:
    """A time that a calendar has; a program inside may have set any."""
    return max(-(2**63), min(2**63 - 1, time_ns))


def problem_words(error: OSError, paths: Sequence[str]) -> str:
    """What went wrong, with the path that the caller knows and none of the host's."""
    words = error.strerror or os.strerror(error.errno or errno.EIO)
    if error.errno == errno.EXDEV:
        words = "leads out of the volume"
    return f"{' -> '.join(path[:256] for path in paths)}: {words}"
