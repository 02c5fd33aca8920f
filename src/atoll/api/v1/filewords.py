"""What a guest says about files beyond what one file is: lists and their ends, matches, changes, attributes.

As hostile as all that a guest says: every text has a bound, every number a range, and what does not fit is GuestFailed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from atoll.api.v1.guestwords import Heard, ended_early
from atoll.model import limits
from atoll.wire import codec, guest
from atoll.wire.node import GuestStream
from atoll.wire.public import (
    ArchiveUnpacked,
    FileChanged,
    FileMatch,
    FileOverflow,
    FileReplacement,
    FileWatching,
)

T = TypeVar("T")

_Path = Annotated[str, Meta(max_length=limits.PATH_BYTES_MAX * 2)]
_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Line = Annotated[str, Meta(max_length=limits.SEARCH_LINE_BYTES_MAX)]


class ListEnd(msgspec.Struct):
    """How a list ended."""

    truncated: bool = False
    searched: _Count = 0
    skipped: _Count = 0
    replaced: _Count = 0


class _Match(msgspec.Struct):
    path: _Path
    line: _Count
    column: _Count
    length: _Count
    text: _Line
    cut: bool


class _Replacement(msgspec.Struct):
    path: _Path
    count: _Count


class _Unpacked(msgspec.Struct):
    entries: _Count
    bytes: _Count


class _Attributes(msgspec.Struct):
    attributes: dict[Annotated[str, Meta(max_length=limits.FILE_NAME_BYTES_MAX)], bytes]


class _Watching(msgspec.Struct):
    path: _Path
    folders: _Count


class _Overflow(msgspec.Struct):
    path: _Path


class _Changed(msgspec.Struct):
    type: Annotated[str, Meta(max_length=16)]
    path: _Path
    directory: bool
    cookie: Annotated[int, Meta(ge=0, le=2**32 - 1)] | None = None


async def collected(stream: GuestStream, read: Callable[[Any], T], items_max: int) -> tuple[list[T], ListEnd]:
    """All entries of an operation that lists in batches, and how it ended."""
    found: list[T] = []
    heard = Heard(items_max)
    async for message in stream:
        if isinstance(message, guest.End):
            return found, codec.from_guest(message.value, ListEnd)
        found += [read(entry) for entry in heard.batch(message)]
    raise ended_early()


def match(value: Any) -> FileMatch:
    words = codec.from_guest(value, _Match)
    return FileMatch(**msgspec.structs.asdict(words))


def replacement(value: Any) -> FileReplacement:
    words = codec.from_guest(value, _Replacement)
    return FileReplacement(path=words.path, count=words.count)


def unpacked(value: Any) -> ArchiveUnpacked:
    words = codec.from_guest(value, _Unpacked)
    return ArchiveUnpacked(entries=words.entries, bytes=words.bytes)


def attributes(value: Any) -> dict[str, bytes]:
    return codec.from_guest(value, _Attributes).attributes


def file_event(value: Any) -> FileWatching | FileChanged | FileOverflow:
    kind = value.get("type")
    if kind == "watching":
        begun = codec.from_guest(value, _Watching)
        return FileWatching(path=begun.path, directories=begun.folders)
    if kind == "overflow":
        return FileOverflow(path=codec.from_guest(value, _Overflow).path)
    words = codec.from_guest(value, _Changed)
    return FileChanged(change=words.type, path=words.path, directory=words.directory, cookie=words.cookie)
