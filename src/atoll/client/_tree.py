"""Folders of this machine that go into a sandbox as an archive, and folders that come out of one.

What comes out is hostile. Every folder on the way to an entry is opened without following links, and a link that leads
out of the folder is not made; so nothing is written elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from atoll.client._local import local_errors
from atoll.client._progress import Meter
from atoll.client._untar import Entry, TarReader
from atoll.model import limits
from atoll.model.errors import GuestFailed, InvalidArgument, TooLarge
from atoll.model.files import UnsafeName, entry_parts, link_stays_inside


@dataclass(frozen=True, slots=True)
class TreeCopied:
    """What became of a folder: entries and bytes that were copied, and what was left out.

    Left out are sockets, pipes and devices, and links that lead out of the folder. Also named is what could not be read
    in the sandbox, and what became shorter meanwhile and has zeros at its end.
    """

    entries: int
    bytes: int
    skipped: tuple[str, ...] = ()


class TreeSource:
    """A local folder as a tar archive that is written while it is read: nothing of it is held or stored."""

    def __init__(self, root: Path, meter: Meter) -> None:
        if not root.is_dir():
            raise InvalidArgument(f"{root}: not a folder", code="local_file")
        self._root = root
        self._meter = meter
        self._pieces = self._tar()
        self.entries = 0
        self.skipped: list[str] = []

    def read(self, size: int = -1) -> bytes:  # noqa: ARG002 - the size of a piece is ours to choose
        return next(self._pieces, b"")

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces

    def _tar(self) -> Iterator[bytes]:
        small = bytearray()
        for piece in self._parts():
            small += piece
            if len(small) >= limits.UPLOAD_CHUNK_BYTES:
                yield bytes(small)
                small.clear()
        yield bytes(small) + bytes(2 * tarfile.BLOCKSIZE)

    def _parts(self) -> Iterator[bytes]:
        for folder, folders, files in os.walk(self._root, onerror=_raise):
            folders.sort()
            for name in sorted(folders + files):
                path = os.path.join(folder, name)  # noqa: PTH118 - one join per file of a tree
                try:
                    yield from self._entry(path, os.path.relpath(path, self._root))
                except OSError as error:
                    raise InvalidArgument(f"{path}: {error.strerror}", code="local_file") from error

    def _entry(self, path: str, name: str) -> Iterator[bytes]:
        status = os.lstat(path)
        info = tarfile.TarInfo(name)
        info.mode, info.mtime = stat.S_IMODE(status.st_mode), int(status.st_mtime)
        if stat.S_ISLNK(status.st_mode):
            info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)  # noqa: PTH115
            if not link_stays_inside(name.split("/"), info.linkname):
                self.skipped.append(name)
                return
        elif stat.S_ISDIR(status.st_mode):
            info.type = tarfile.DIRTYPE
        elif not stat.S_ISREG(status.st_mode):
            self.skipped.append(name)
            return
        self.entries += 1
        if info.type == tarfile.REGTYPE:
            yield from self._file(path, info)
        else:
            yield _header(info)

    def _file(self, path: str, info: tarfile.TarInfo) -> Iterator[bytes]:
        with open(path, "rb", buffering=0) as file:
            left = info.size = os.fstat(file.fileno()).st_size
            yield _header(info)
            while left:
                data = file.read(min(left, limits.UPLOAD_CHUNK_BYTES))
                if not data:
                    raise InvalidArgument(f"{path}: became shorter while it was read", code="local_file")
                left -= len(data)
                self._meter.add(len(data))
                yield data
        yield bytes(-info.size % tarfile.BLOCKSIZE)


def _header(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _raise(error: OSError) -> None:
    raise InvalidArgument(f"{error.filename}: {error.strerror}", code="local_file") from error


class TreeTarget:
    """A local folder that a sandbox's archive is unpacked into as it comes."""

    def __init__(self, root: Path, size_bytes_max: int | None, meter: Meter) -> None:
        self._root = root
        with local_errors(root):
            root.mkdir(parents=True, exist_ok=True)
            self._root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._reader = TarReader()
        self._left_bytes = size_bytes_max
        self._meter = meter
        self._file: _Arriving | None = None
        self._modes: list[tuple[list[str], int]] = []
        self.entries = 0
        self.skipped: list[str] = []

    def write(self, data: bytes) -> None:
        with self._our_errors():
            for item in self._reader.feed(data):
                if isinstance(item, Entry):
                    self._begin(item)
                else:
                    self._content(item)

    @contextmanager
    def _our_errors(self) -> Iterator[None]:
        try:
            yield
        except UnsafeName as error:
            raise GuestFailed(str(error), code="unsafe_archive") from None
        except OSError as error:
            name = error.filename if isinstance(error.filename, str) else self._root
            raise InvalidArgument(f"{name}: {error.strerror}", code="local_file") from error

    def _begin(self, entry: Entry) -> None:
        parts = entry_parts(entry.name)
        if not parts and entry.type == "directory":
            return  # the folder itself
        self.entries += 1
        if self.entries > limits.ARCHIVE_ENTRIES_MAX:
            raise TooLarge(f"the folder has more than {limits.ARCHIVE_ENTRIES_MAX} entries")
        if entry.type == "directory":
            os.close(self._folder(parts))
            self._modes.append((parts, entry.mode))
            return
        if not parts:
            raise UnsafeName("an entry has no name")
        arriving = _Arriving(entry, self._folder(parts[:-1]), parts[-1])
        try:
            if entry.type == "file":
                arriving.open()
                self._file = arriving
                return
            if entry.type == "hardlink":
                self._link(entry_parts(entry.target), arriving)
            elif link_stays_inside(parts, entry.target):
                os.symlink(entry.target, arriving.temporary, dir_fd=arriving.folder)
            else:
                self.skipped.append(entry.name)
                self.entries -= 1
                return
            arriving.publish()
        finally:
            if self._file is not arriving:
                arriving.close()

    def _link(self, source: list[str], arriving: _Arriving) -> None:
        if not source:
            raise UnsafeName("a link to nothing")
        source_folder = self._folder(source[:-1])
        try:
            if not stat.S_ISREG(os.stat(source[-1], dir_fd=source_folder, follow_symlinks=False).st_mode):
                raise UnsafeName("a hard link to something that is not a file")
            os.link(
                source[-1],
                arriving.temporary,
                src_dir_fd=source_folder,
                dst_dir_fd=arriving.folder,
                follow_symlinks=False,
            )
        finally:
            os.close(source_folder)

    def _folder(self, parts: list[str]) -> int:
        fd = os.dup(self._root_fd)
        for part in parts:
            try:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=fd)
                below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            except NotADirectoryError:
                raise UnsafeName(f"a link or a file stands where a folder is needed: {part!r}") from None
            finally:
                os.close(fd)
            fd = below
        return fd

    def _content(self, data: bytes) -> None:
        assert self._file is not None
        fd, entry = self._file.fd, self._file.entry
        if data:
            if self._left_bytes is not None:
                self._left_bytes -= len(data)
                if self._left_bytes < 0:
                    raise TooLarge("the folder has more bytes than size_bytes_max")
            self._meter.add(len(data))
            rest = memoryview(data)
            while len(rest):
                rest = rest[os.write(fd, rest) :]
            return
        os.fchmod(fd, entry.mode & 0o777)  # no set-uid bits from outside
        if 0 <= entry.mtime_s < 2**33:
            os.utime(fd, (entry.mtime_s, entry.mtime_s))
        arrived, self._file = self._file, None
        try:
            arrived.publish()
        finally:
            arrived.close()

    def copied(self) -> TreeCopied:
        """The archive is complete: its folders get their rights, the deepest first, so that none locks us out."""
        self._reader.check_complete()
        with self._our_errors():
            for parts, mode in reversed(self._modes):
                fd = self._folder(parts)
                try:
                    os.fchmod(fd, mode & 0o777 | 0o700)
                finally:
                    os.close(fd)
        return TreeCopied(self.entries, self._meter.done_bytes, (*self.skipped, *self._reader.skipped))

    def __enter__(self) -> TreeTarget:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
        os.close(self._root_fd)


class _Arriving:
    """An entry on its way to its name, in a folder that is this one's to close.

    It takes the place of what is there when it is complete: nobody sees half of it, and a full disk leaves the old one.
    """

    def __init__(self, entry: Entry, folder: int, name: str) -> None:
        self.entry = entry
        self.folder = folder
        self.temporary = f".atoll-{os.urandom(8).hex()}"
        self.fd = -1
        self._name = name

    def open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.fd = os.open(self.temporary, flags, 0o600, dir_fd=self.folder)

    def publish(self) -> None:
        try:
            os.rename(self.temporary, self._name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._name) from None

    def close(self) -> None:
        """What has not taken its place is gone; so is a link to the file that stands there already."""
        with contextlib.suppress(OSError):
            os.unlink(self.temporary, dir_fd=self.folder)
        if self.fd >= 0:
            os.close(self.fd)
        os.close(self.folder)
