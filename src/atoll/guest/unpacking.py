"""Archives into the sandbox. An archive is hostile: nothing of it leaves the target folder, and all of it is bounded.

Every folder on the way to an entry is opened without following links, so no link, old or from the archive, leads a
write elsewhere. A link may point up only with leading `..`, which count from a real folder; so where it leads can be
told from its text alone.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat as modes
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

from atoll.guest.channel import Channel
from atoll.guest.failure import Refused
from atoll.guest.params import Params, integer, path, text
from atoll.guest.users import User
from atoll.model import files, limits

_CHUNK_BYTES = 256 * limits.KIB
# What the libraries say of an archive that is damaged; the last two of a name that is empty or no text.
_UNUSABLE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    struct.error,
    IndexError,
    ValueError,
)


def entry_parts(name: str) -> list[str]:
    """The folders and the name of an entry; refused if it is absolute or goes up. Empty for the root itself."""
    try:
        return files.entry_parts(name)
    except files.UnsafeName as error:
        raise Refused("unsafe_archive", str(error)) from None


def check_link(parts: list[str], target: str) -> None:
    """A link at `parts` may say `target` only if that stays inside, whatever other links the archive holds."""
    if not files.link_stays_inside(parts, target):
        raise Refused("unsafe_archive", f"a link leads out of the folder: {'/'.join(parts)[:256]!r}")


class FrameSource(io.RawIOBase):
    """An upload as a file that can only be read forwards."""

    def __init__(self, chunks: Iterator[memoryview]) -> None:
        self._chunks = chunks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        parts: list[bytes] = []
        wanted = size if size >= 0 else limits.FRAME_BYTES_MAX
        while wanted:
            if not self._rest:
                self._rest = bytes(next(self._chunks, b""))
                if not self._rest:
                    break
            parts.append(self._rest[:wanted])
            self._rest = self._rest[wanted:]
            wanted -= len(parts[-1])
        return b"".join(parts)

    def drain(self) -> None:
        """To the commit: bytes after the archive's own end are padding."""
        self._rest = b""
        for _ in self._chunks:
            pass


class Target:
    """The folder that is unpacked into, and what may still come."""

    def __init__(self, root: str, bytes_max: int) -> None:
        self.root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._bytes_left = bytes_max
        self.entries = 0
        self.bytes = 0

    def count_entry(self) -> None:
        self.entries += 1
        if self.entries > limits.ARCHIVE_ENTRIES_MAX:
            raise Refused("too_large", f"the archive has more than {limits.ARCHIVE_ENTRIES_MAX} entries")

    def folder(self, parts: list[str]) -> int:
        """A descriptor of this folder below the root, made where it is missing; no link on the way is followed."""
        fd = os.dup(self.root_fd)
        for part in parts:
            try:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=fd)
                below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            except NotADirectoryError:
                raise Refused("unsafe_archive", f"a link or a file stands where a folder is needed: {part!r}") from None
            finally:
                os.close(fd)
            fd = below
        return fd

    def put_folder(self, parts: list[str], mode: int) -> None:
        fd = self.folder(parts)
        try:
            if parts:
                os.fchmod(fd, mode & 0o777 | 0o700)
        finally:
            os.close(fd)

    def put_file(self, parts: list[str], mode: int, mtime_s: float, content: IO[bytes]) -> None:
        folder = self.folder(parts[:-1])
        try:
            with _complete(parts[-1], folder) as temporary:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                fd = os.open(temporary, flags, 0o600, dir_fd=folder)
                try:
                    self._copy(content, fd)
                    os.fchmod(fd, mode & 0o777)  # no set-uid bits from outside
                    if 0 <= mtime_s < 2**33:
                        os.utime(fd, (mtime_s, mtime_s))
                finally:
                    os.close(fd)
        finally:
            os.close(folder)

    def _copy(self, content: IO[bytes], fd: int) -> None:
        while data := content.read(_CHUNK_BYTES):
            self._bytes_left -= len(data)
            self.bytes += len(data)
            if self._bytes_left < 0:
                raise Refused("too_large", f"the archive unpacks to more than {self.bytes - len(data)} bytes")
            rest = memoryview(data)
            while len(rest):
                rest = rest[os.write(fd, rest) :]

    def put_link(self, parts: list[str], target: str) -> None:
        check_link(parts, target)
        folder = self.folder(parts[:-1])
        try:
            with _complete(parts[-1], folder) as temporary:
                os.symlink(target, temporary, dir_fd=folder)
        finally:
            os.close(folder)

    def put_hard_link(self, parts: list[str], to: list[str]) -> None:
        source, folder = self.folder(to[:-1]), self.folder(parts[:-1])
        try:
            if not modes.S_ISREG(os.stat(to[-1], dir_fd=source, follow_symlinks=False).st_mode):
                raise Refused("unsafe_archive", "a hard link to something that is not a file")
            if parts != to:
                with _complete(parts[-1], folder) as temporary:
                    os.link(to[-1], temporary, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)
                with contextlib.suppress(FileNotFoundError):  # a link in place of one to the same file: nothing moves
                    os.unlink(temporary, dir_fd=folder)
        finally:
            os.close(source)
            os.close(folder)


@contextlib.contextmanager
def _complete(name: str, folder: int) -> Iterator[str]:
    """Where to make an entry: it takes its place when it is complete, so that a reader never sees half of one and a
    full disk leaves the old one. A folder does not give way to a file.
    """
    temporary = f".atoll-{os.urandom(8).hex()}"
    try:
        yield temporary
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, error.strerror, name) from None
        raise


def unpack(user: User, params: Params, channel: Channel) -> None:
    root = path(params, user.home)
    kind = text(params, "format", "tar")
    bytes_max = integer(params, "bytes_max", limits.ARCHIVE_BYTES_MAX, low=1, high=limits.ARCHIVE_BYTES_MAX)
    if kind not in files.ARCHIVE_FORMATS:
        raise Refused("invalid_argument", f"format is one of {', '.join(files.ARCHIVE_FORMATS)}")
    os.makedirs(root, exist_ok=True)
    target = Target(root, bytes_max)
    source = FrameSource(iter(channel.read_upload()))
    try:
        (_unpack_zip if kind == "zip" else _unpack_tar)(source, target, root)
    except _UNUSABLE as error:
        raise Refused("invalid_argument", f"not a usable archive: {error}"[:512]) from None
    source.drain()
    channel.send_ok({"entries": target.entries, "bytes": target.bytes})


def _unpack_tar(source: FrameSource, target: Target, _root: str) -> None:
    with tarfile.open(fileobj=source, mode="r|*", errors="surrogateescape") as archive:
        for entry in archive:
            target.count_entry()
            parts = entry_parts(entry.name)
            archive.members = []  # type: ignore[attr-defined] # it would remember every entry
            if entry.isdir():
                target.put_folder(parts, entry.mode)
            elif not parts:
                raise Refused("unsafe_archive", "an entry has no name")
            elif entry.issym():
                target.put_link(parts, entry.linkname)
            elif entry.islnk():
                target.put_hard_link(parts, entry_parts(entry.linkname))
            elif entry.isreg():
                content = archive.extractfile(entry)
                assert content is not None
                target.put_file(parts, entry.mode, entry.mtime, content)
            else:
                raise Refused("unsafe_archive", f"neither file, folder nor link: {entry.name[:256]!r}")


def _unpack_zip(source: FrameSource, target: Target, root: str) -> None:
    """A zip has its table at the end, so it is first kept in a file that has no name."""
    with _spool(root) as file:
        while data := source.read(limits.FRAME_BYTES_MAX):
            file.write(data)
        with zipfile.ZipFile(file) as archive:
            for entry in archive.infolist():
                target.count_entry()
                mode = entry.external_attr >> 16
                parts = entry_parts(entry.filename)
                if entry.is_dir():
                    target.put_folder(parts, mode or 0o755)
                    continue
                if not parts:
                    raise Refused("unsafe_archive", "an entry has no name")
                with archive.open(entry) as content:
                    if modes.S_ISLNK(mode):
                        target.put_link(parts, os.fsdecode(content.read(limits.PATH_BYTES_MAX)))
                    elif modes.S_IFMT(mode) in (0, modes.S_IFREG):
                        target.put_file(parts, mode & 0o777 or 0o644, -1, content)
                    else:
                        raise Refused("unsafe_archive", f"neither file, folder nor link: {entry.filename[:256]!r}")


def _spool(root: str) -> IO[bytes]:
    name = os.path.join(root, f".atoll-{os.urandom(8).hex()}")
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(name)
    return open(fd, "w+b")
