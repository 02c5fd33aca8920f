"""Folders and files out of the sandbox as one archive, written as it is sent: nothing of it is held or stored.

They may change meanwhile. What is gone is not in it; what cannot be read is left out, and what became shorter has
zeros at its end: both are named, in the last event, at the end of a tar and in the comment of a zip.
"""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import stat as modes
import tarfile
import zipfile
from collections.abc import Iterator
from typing import IO

from atoll.guest.channel import Channel
from atoll.guest.failure import Refused
from atoll.guest.listing import walk
from atoll.guest.params import Params, path, text, texts
from atoll.guest.reading import open_regular
from atoll.guest.users import User
from atoll.model import limits
from atoll.model.files import ARCHIVE_FORMATS, SKIPPED_FIELD
from atoll.wire import framing

_CHUNK_BYTES = 256 * limits.KIB


class FrameSink(io.RawIOBase):
    """A file that can only be written to, in frames."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._buffer = bytearray()
        self.count = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        self._buffer += data  # type: ignore[arg-type]
        length = memoryview(data).nbytes  # type: ignore[arg-type]
        self.count += length
        if len(self._buffer) >= 256 * limits.KIB:
            self.flush()
        return length

    def flush(self) -> None:
        with memoryview(self._buffer) as view:
            for start in range(0, len(view), limits.FRAME_BYTES_MAX):
                self._channel.send_data(framing.OUTPUT, view[start : start + limits.FRAME_BYTES_MAX])
        self._buffer.clear()


class Shrunk(io.RawIOBase):
    """A file that has as many bytes as were announced, whatever becomes of it: what is missing is zeros."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._left = size
        self.is_short = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        try:
            data = b"" if self.is_short else self._file.read(wanted)
        except OSError:
            data = b""
        if len(data) < wanted:
            self.is_short = True
            data += bytes(wanted - len(data))
        self._left -= wanted
        return data


class Skipped:
    """What could not be packed, or not as it was; so many names as can be told."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._room_bytes = limits.TAR_EXTENDED_BYTES_MAX // 2
        self.count = 0

    def add(self, name: str) -> None:
        self.count += 1
        self._room_bytes -= len(json.dumps(name)) + 2
        if self._room_bytes > 0:
            self.names.append(name)


def pack(user: User, params: Params, channel: Channel) -> None:
    """`path` and what is below it; or only `names` below it. Entries are named relative to it."""
    root = path(params, user.home)
    kind = text(params, "format", "tar")
    if kind not in ARCHIVE_FORMATS:
        raise Refused("invalid_argument", f"format is one of {', '.join(ARCHIVE_FORMATS)}")
    names = texts(params, "names")
    os.lstat(root)
    sink = FrameSink(channel)
    channel.send_event("opened", {"path": root, "format": kind})
    skipped = Skipped()
    if kind == "zip":
        entries = _pack_zip(sink, root, names, skipped)
    elif kind == "tar.gz":
        with gzip.GzipFile(fileobj=sink, mode="wb", compresslevel=1, mtime=0) as packer:
            entries = _pack_tar(packer, root, names, skipped)
    else:
        entries = _pack_tar(sink, root, names, skipped)
    sink.flush()
    channel.send_end({"entries": entries, "bytes": sink.count, "skipped": skipped.names, "left_out": skipped.count})


def _members(root: str, names: list[str]) -> tuple[list[tuple[str, str]], bool]:
    """What to begin with: full name, and name in the archive; and whether the caller named each of them."""
    if names:
        for name in names:
            if name.startswith("/") or ".." in name.split("/"):
                raise Refused("invalid_argument", "names are relative to path")
        return [(os.path.join(root, name), name.rstrip("/")) for name in names], True
    if not os.path.isdir(root):
        return [(root, os.path.basename(root))], True
    with os.scandir(root) as entries:
        return sorted((entry.path, entry.name) for entry in entries), False


def _expand(root: str, names: list[str], skipped: Skipped) -> Iterator[tuple[str, str, os.stat_result]]:
    """Full name, name in the archive, and what it is. What the caller named must be there and readable."""
    count = 0
    members, named = _members(root, names)
    for full, name in members:
        try:
            status = os.lstat(full)
            if named and not modes.S_ISLNK(status.st_mode) and not os.access(full, os.R_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), full)
        except FileNotFoundError:
            if named:
                raise
            continue
        yield full, name, status
        count += 1
        if modes.S_ISDIR(status.st_mode):
            for below, relative, below_status in _below(full, skipped, name):
                yield below, relative, below_status
                count += 1
                if count > limits.ARCHIVE_ENTRIES_MAX:
                    raise Refused("too_large", f"more than {limits.ARCHIVE_ENTRIES_MAX} files")


def _below(folder: str, skipped: Skipped, name: str) -> Iterator[tuple[str, str, os.stat_result]]:
    unreadable: list[str] = []
    try:
        for below, status, _ in walk(folder, limits.TREE_DEPTH_MAX, skipped=unreadable, too_deep=unreadable):
            yield below, f"{name}/{os.path.relpath(below, folder)}", status
            while unreadable:
                skipped.add(f"{name}/{os.path.relpath(unreadable.pop(), folder)}")
    except FileNotFoundError:
        pass
    except PermissionError:
        skipped.add(name)
    for left in unreadable:
        skipped.add(f"{name}/{os.path.relpath(left, folder)}")


def _pack_tar(sink: IO[bytes] | FrameSink | gzip.GzipFile, root: str, names: list[str], skipped: Skipped) -> int:
    count = 0
    with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT, errors="surrogateescape") as archive:
        for full, name, status in _expand(root, names, skipped):
            archive.members = []  # type: ignore[attr-defined] # it would remember every entry
            try:
                count += _add_to_tar(archive, full, name, status, skipped)
            except FileNotFoundError:
                continue  # removed since it was listed
            except (OSError, Refused):
                skipped.add(name)
        if skipped.count:
            archive.addfile(_note(root, skipped))
    return count


def _note(root: str, skipped: Skipped) -> tarfile.TarInfo:
    """The last entry says what is missing: the folder itself once more, with a field of ours that others pass over."""
    info = tarfile.TarInfo("./")
    found = os.stat(root)
    info.type, info.mtime = tarfile.DIRTYPE, int(found.st_mtime)
    info.mode = modes.S_IMODE(found.st_mode) if modes.S_ISDIR(found.st_mode) else 0o755
    info.pax_headers = {SKIPPED_FIELD: json.dumps(skipped.names)}
    return info


def _add_to_tar(archive: tarfile.TarFile, full: str, name: str, status: os.stat_result, skipped: Skipped) -> int:
    if modes.S_ISDIR(status.st_mode) or modes.S_ISLNK(status.st_mode):
        archive.addfile(archive.gettarinfo(full, name))
        return 1
    if not modes.S_ISREG(status.st_mode):
        return 0  # sockets, pipes and devices mean nothing elsewhere
    fd, _ = open_regular(full)
    with open(fd, "rb") as file:
        info = archive.gettarinfo(arcname=name, fileobj=file)
        whole = Shrunk(file, info.size)
        archive.addfile(info, whole if info.isreg() else None)
    if whole.is_short:
        skipped.add(name)
    return 1


def _pack_zip(sink: FrameSink, root: str, names: list[str], skipped: Skipped) -> int:
    count = 0
    spellings = Spellings()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False) as archive:
        for full, name, status in _expand(root, names, skipped):
            spelling = spellings.take(name)
            if not spelling:
                skipped.add(name)
                continue
            try:
                count += _add_to_zip(archive, full, spelling, status, name, skipped)
            except FileNotFoundError:
                continue
            except (OSError, Refused):
                skipped.add(name)
        if skipped.count:
            archive.comment = f"{SKIPPED_FIELD}={json.dumps(skipped.names)}".encode("ascii")
    return count


class Spellings:
    """A zip names its entries in UTF-8: bytes that are not are spelled out, and none takes the name of another file."""

    def __init__(self) -> None:
        self._taken: set[str] = set()  # of those that could be a spelling, which are few

    def take(self, name: str) -> str:
        """The name in the archive; empty if another one has it."""
        spelling = os.fsencode(name).decode("utf-8", "backslashreplace")
        if "\\x" in spelling:
            if spelling in self._taken:
                return ""
            self._taken.add(spelling)
        return spelling


def _add_to_zip(
    archive: zipfile.ZipFile, full: str, spelling: str, status: os.stat_result, name: str, skipped: Skipped
) -> int:
    if modes.S_ISLNK(status.st_mode):
        entry = zipfile.ZipInfo(spelling)
        entry.external_attr = status.st_mode << 16
        archive.writestr(entry, os.fsencode(os.readlink(full)))
    elif modes.S_ISDIR(status.st_mode):
        archive.write(full, spelling)
    elif modes.S_ISREG(status.st_mode):
        fd, _ = open_regular(full)
        with open(fd, "rb") as file:
            entry = zipfile.ZipInfo.from_file(full, spelling, strict_timestamps=False)
            entry.compress_type, entry._compresslevel = zipfile.ZIP_DEFLATED, 1  # type: ignore[attr-defined]
            whole = Shrunk(file, entry.file_size)
            with archive.open(entry, "w") as target:
                while data := whole.read(_CHUNK_BYTES):
                    target.write(data)
        if whole.is_short:
            skipped.add(name)
    else:
        return 0
    return 1
