"""A tar archive as it comes in, without I/O: bytes in, entries and their bytes out. It comes from a sandbox: hostile.

Read is what our guest writes: POSIX archives, with extended headers for names and sizes that the old header cannot
hold. Anything else is refused.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass

from atoll.model import limits
from atoll.model.errors import GuestFailed
from atoll.model.files import SKIPPED_FIELD

BLOCK = tarfile.BLOCKSIZE
_KINDS = {tarfile.REGTYPE: "file", tarfile.AREGTYPE: "file", tarfile.DIRTYPE: "directory", tarfile.SYMTYPE: "symlink"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in an archive. `target` is what a link says, or which entry a hard link is another name of."""

    name: str
    type: str
    mode: int
    size: int
    mtime_s: float
    target: str = ""


class TarReader:
    """`feed` gives an Entry for each thing and then, for a file, its bytes; an empty piece ends them."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._left_bytes = 0  # of the current file
        self._padding_bytes = 0
        self._extended: dict[str, str] = {}
        self._extended_bytes = 0  # of an extended header that is being waited for
        self.ended = False
        self.skipped: list[str] = []

    def feed(self, data: bytes) -> Iterator[Entry | bytes]:
        self._buffer += data
        while self._buffer and not self.ended:
            if self._left_bytes:
                yield from self._content()
            elif self._extended_bytes:
                if len(self._buffer) < self._extended_bytes:
                    return
                self._take_extended()
            elif self._padding_bytes:
                self._skip_padding()
            elif len(self._buffer) < BLOCK:
                return
            else:
                yield from self._header()

    def _content(self) -> Iterator[bytes]:
        piece = bytes(self._buffer[: self._left_bytes])
        del self._buffer[: len(piece)]
        self._left_bytes -= len(piece)
        yield piece
        if not self._left_bytes:
            yield b""

    def _skip_padding(self) -> None:
        skipped = min(self._padding_bytes, len(self._buffer))
        del self._buffer[:skipped]
        self._padding_bytes -= skipped

    def _take_extended(self) -> None:
        self._extended = extended_fields(bytes(self._buffer[: self._extended_bytes]))
        del self._buffer[: self._extended_bytes]
        self._extended_bytes = 0

    def _header(self) -> Iterator[Entry | bytes]:
        block = bytes(self._buffer[:BLOCK])
        del self._buffer[:BLOCK]
        if block == bytes(BLOCK):
            self.ended = True
            return
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.TarError, ValueError) as error:
            raise _bad(str(error)) from None
        if info.type in (tarfile.XHDTYPE, tarfile.XGLTYPE):
            if not 0 < info.size <= limits.TAR_EXTENDED_BYTES_MAX:
                raise _bad("an extended header is too large")
            self._extended_bytes = info.size
            self._padding_bytes = -info.size % BLOCK
            return
        entry = self._entry(info)
        if entry.type == "file":
            self._left_bytes, self._padding_bytes = entry.size, -entry.size % BLOCK
        yield entry
        if entry.type == "file" and not entry.size:
            yield b""

    def _entry(self, info: tarfile.TarInfo) -> Entry:
        extended, self._extended = self._extended, {}
        if SKIPPED_FIELD in extended:
            self._take_skipped(extended[SKIPPED_FIELD])
        kind = "hardlink" if info.type == tarfile.LNKTYPE else _KINDS.get(info.type)
        if kind is None:
            raise _bad("it holds something that is neither file, folder nor link")
        try:
            size = int(extended.get("size", info.size)) if kind == "file" else 0
            mtime_s = float(extended.get("mtime", info.mtime))
        except ValueError:
            raise _bad("a header is not a number") from None
        if not 0 <= size < 2**63:
            raise _bad("a size is out of range")
        target = extended.get("linkpath", info.linkname)
        return Entry(extended.get("path", info.name), kind, info.mode & 0o7777, size, mtime_s, target)

    def _take_skipped(self, text: str) -> None:
        try:
            names = json.loads(text)
        except (ValueError, RecursionError):
            names = None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise _bad("the list of what was left out cannot be read")
        self.skipped = names

    def check_complete(self) -> None:
        if not self.ended:
            raise _bad("it ends too early")


def extended_fields(payload: bytes) -> dict[str, str]:
    """The fields of an extended header: each is its own length, a name and a value."""
    fields: dict[str, str] = {}
    position = 0
    while position < len(payload):
        length_text, space, _ = payload[position : position + 20].partition(b" ")
        if not space or not length_text.isdigit():
            raise _bad("an extended header is broken")
        end = position + int(length_text)
        name, equals, value = payload[position + len(length_text) + 1 : end - 1].partition(b"=")
        if not equals or end > len(payload) or payload[end - 1 : end] != b"\n":
            raise _bad("an extended header is broken")
        fields[name.decode("ascii", "replace")] = value.decode("utf-8", "surrogateescape")
        position = end
    return fields


def _bad(why: str) -> GuestFailed:
    return GuestFailed(f"the archive from the sandbox cannot be read: {why}", code="bad_archive")
