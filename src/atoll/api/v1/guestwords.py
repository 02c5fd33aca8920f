"""What a guest says, turned into public answers; nothing of it is believed before it fits.

A guest is hostile: every text here has a bound, every number a range, and what does not fit is GuestFailed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from atoll.model import limits
from atoll.model.errors import AtollError, GuestFailed, TooLarge, from_guest
from atoll.wire import codec, guest
from atoll.wire.node import GuestStream
from atoll.wire.public import FileView, InputWritten, ProcessDropped, ProcessExited, ProcessStarted, ProcessView

T = TypeVar("T")

_Id = Annotated[str, Meta(min_length=1, max_length=64)]
_Text = Annotated[str, Meta(max_length=limits.PATH_BYTES_MAX)]
_Path = Annotated[str, Meta(max_length=limits.PATH_BYTES_MAX * 2)]
_Pid = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Nanoseconds = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Stream = Annotated[str, Meta(pattern="^(stdout|stderr)$")]
_Moment = Annotated[float, Meta(ge=-62_000_000_000, le=253_000_000_000)]  # what a datetime can hold


class _Started(msgspec.Struct):
    id: _Id
    pid: _Pid


class _Dropped(msgspec.Struct):
    stream: _Stream
    bytes: _Count
    offset: _Count


class _Refused(msgspec.Struct):
    code: _Id
    message: _Text


class _Exit(msgspec.Struct):
    code: Annotated[int, Meta(ge=-255, le=1024)]
    timed_out: bool
    oom: bool
    duration_s: Annotated[float, Meta(ge=0, le=1e10)]
    signal: Annotated[int, Meta(ge=0, le=128)] | None = None


class _Process(msgspec.Struct):
    id: _Id
    pid: _Pid
    argv: Annotated[list[str], Meta(max_length=limits.ENV_ENTRIES_MAX * 8)]
    cwd: _Text
    user: _Text
    started_at: _Moment
    tag: _Text = ""
    pty: bool = False
    stdin: bool = False
    stdin_offset: _Count = 0
    shell: bool = False
    exit: _Exit | None = None


class _Written(msgspec.Struct):
    written: _Count
    offset: _Count = 0


class _File(msgspec.Struct):
    path: _Path
    name: _Path
    type: Annotated[str, Meta(max_length=16)]
    size: _Count
    mode: Annotated[int, Meta(ge=0, le=0o7777)]
    mtime_ns: _Nanoseconds
    uid: Annotated[int, Meta(ge=0, le=2**32 - 1)]
    gid: Annotated[int, Meta(ge=0, le=2**32 - 1)]
    user: _Text | None = None
    group: _Text | None = None
    target: _Path | None = None
    atime_ns: _Nanoseconds | None = None
    ctime_ns: _Nanoseconds | None = None
    links: _Count | None = None
    mime: _Text | None = None


def started(value: Any) -> ProcessStarted:
    words = codec.from_guest(value, _Started)
    return ProcessStarted(id=words.id, pid=words.pid)


def dropped(value: Any) -> ProcessDropped:
    """The guest names the offset where its output goes on; the public event where the gap begins."""
    words = codec.from_guest(value, _Dropped)
    return ProcessDropped(stream=words.stream, offset=max(0, words.offset - words.bytes), length=words.bytes)


def refused(value: Any) -> AtollError:
    """Why something that was asked for on the way is not done; all else goes on."""
    words = codec.from_guest(value, _Refused)
    return from_guest(words.code, words.message)


def exited(value: Any) -> ProcessExited:
    words = codec.from_guest(value, _Exit)
    return ProcessExited(
        exit_code=words.code,
        signal=words.signal,
        timed_out=words.timed_out,
        oom=words.oom,
        duration_s=words.duration_s,
    )


def process(value: Any) -> ProcessView:
    words = codec.from_guest(value, _Process)
    return ProcessView(
        id=words.id,
        pid=words.pid,
        argv=words.argv,
        tag=words.tag or None,
        user=words.user,
        cwd=words.cwd,
        running=words.exit is None,
        exit_code=words.exit.code if words.exit else None,
        started_at=moment(words.started_at),
        pty=words.pty,
        stdin=words.stdin,
        stdin_offset=words.stdin_offset,
        shell=words.shell,
        signal=words.exit.signal if words.exit else None,
        timed_out=words.exit is not None and words.exit.timed_out,
        oom=words.exit is not None and words.exit.oom,
        duration_s=words.exit.duration_s if words.exit else None,
    )


def written(value: Any) -> InputWritten:
    words = codec.from_guest(value, _Written)
    return InputWritten(written=words.written, offset=words.offset)


def file(value: Any) -> FileView:
    words = codec.from_guest(value, _File)
    return FileView(
        path=words.path,
        name=words.name,
        type=words.type,
        size=words.size,
        mode=words.mode,
        owner=words.user if words.user is not None else str(words.uid),
        group=words.group if words.group is not None else str(words.gid),
        modified_at=moment(words.mtime_ns / 1e9),
        link_target=words.target,
        accessed_at=None if words.atime_ns is None else moment(words.atime_ns / 1e9),
        changed_at=None if words.ctime_ns is None else moment(words.ctime_ns / 1e9),
        links=words.links,
        mime=words.mime,
    )


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


async def entries(stream: GuestStream, items_max: int) -> AsyncIterator[Any]:
    """The entries of an operation that lists things in batches."""
    heard = Heard(items_max)
    async for message in stream:
        if isinstance(message, guest.End | guest.Ok):
            return
        for entry in heard.batch(message):
            yield entry
    raise ended_early()


class Heard:
    """How much of a list has come, in things and in bytes; all of it is held until it can be passed on."""

    def __init__(self, items_max: int) -> None:
        self._items_max = items_max
        self._items = 0
        self._bytes = 0

    def batch(self, message: guest.Message) -> list[Any]:
        """What one message adds to the list; a list over its bounds is refused, whoever is to blame for it."""
        found = message.value.get("entries") if isinstance(message, guest.Event) else None
        if not isinstance(message, guest.Event) or not isinstance(found, list):
            raise GuestFailed("the sandbox answered something else than a list")
        self._items += len(found)
        self._bytes += message.size_bytes
        if self._items > self._items_max:
            raise GuestFailed(f"the sandbox listed more than {self._items_max} things")
        if self._bytes > limits.GUEST_LIST_BYTES_MAX:
            raise TooLarge(
                f"the list has more than {limits.GUEST_LIST_BYTES_MAX} bytes",
                code="list_too_large",
                hint="ask for a part of it: a folder further down, less depth, a narrower pattern, a smaller limit",
            )
        return found


def ended_early() -> GuestFailed:
    return GuestFailed("the sandbox ended its answer too early")
