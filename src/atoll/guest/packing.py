"""Folders and files out of the sandbox as one archive, written as it is sent: nothing of it is held or stored."""

from __future__ import annotations

import io
import os
import stat as modes
import tarfile
import zipfile

from atoll.guest.channel import Channel
from atoll.guest.failure import Refused
from atoll.guest.listing import walk
from atoll.guest.params import Params, path, text, texts
from atoll.guest.users import User
from atoll.model import limits
from atoll.model.files import ARCHIVE_FORMATS
from atoll.wire import framing


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
    entries = _pack_zip(sink, root, names) if kind == "zip" else _pack_tar(sink, root, names, kind)
    sink.flush()
    channel.send_end({"entries": entries, "bytes": sink.count})


def _members(root: str, names: list[str]) -> list[tuple[str, str]]:
    """What to begin with: full name, and name in the archive."""
    if names:
        for name in names:
            if name.startswith("/") or ".." in name.split("/"):
                raise Refused("invalid_argument", "names are relative to path")
        return [(os.path.join(root, name), name.rstrip("/")) for name in names]
    if not os.path.isdir(root):
        return [(root, os.path.basename(root))]
    with os.scandir(root) as entries:
        return sorted((entry.path, entry.name) for entry in entries)


def _expand(root: str, names: list[str]) -> list[tuple[str, str, os.stat_result]]:
    found = []
    for full, name in _members(root, names):
        status = os.lstat(full)
        found.append((full, name, status))
        if modes.S_ISDIR(status.st_mode):
            for below, below_status, _ in walk(full, limits.TREE_DEPTH_MAX):
                found.append((below, f"{name}/{os.path.relpath(below, full)}", below_status))
                if len(found) > limits.ARCHIVE_ENTRIES_MAX:
                    raise Refused("too_large", f"more than {limits.ARCHIVE_ENTRIES_MAX} files")
    return found


def _pack_tar(sink: FrameSink, root: str, names: list[str], kind: str) -> int:
    count = 0
    mode = "w|gz" if kind == "tar.gz" else "w|"
    with tarfile.open(fileobj=sink, mode=mode, format=tarfile.PAX_FORMAT, errors="surrogateescape") as archive:  # type: ignore[call-overload]
        for full, name, status in _expand(root, names):
            if not (modes.S_ISREG(status.st_mode) or modes.S_ISDIR(status.st_mode) or modes.S_ISLNK(status.st_mode)):
                continue  # sockets, pipes and devices mean nothing elsewhere
            try:
                archive.add(full, name, recursive=False)
            except FileNotFoundError:
                continue  # removed since it was listed
            count += 1
    return count


def _pack_zip(sink: FrameSink, root: str, names: list[str]) -> int:
    count = 0
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False) as archive:
        for full, name, status in _expand(root, names):
            if modes.S_ISLNK(status.st_mode):
                entry = zipfile.ZipInfo(_zip_name(name))
                entry.external_attr = status.st_mode << 16
                archive.writestr(entry, os.fsencode(os.readlink(full)))
            elif modes.S_ISREG(status.st_mode) or modes.S_ISDIR(status.st_mode):
                try:
                    archive.write(full, _zip_name(name))
                except FileNotFoundError:
                    continue
            else:
                continue
            count += 1
    return count


def _zip_name(name: str) -> str:
    """A zip names its entries in UTF-8: bytes that are not are shown as such rather than lost."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
