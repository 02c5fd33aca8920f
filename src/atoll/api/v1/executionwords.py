"""What a guest says about contexts and executions, turned into public answers; nothing is believed before it fits."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from atoll.api.v1 import guestwords
from atoll.model import limits
from atoll.model.errors import GuestFailed
from atoll.wire import codec, framing, guest
from atoll.wire.node import GuestStream
from atoll.wire.public.contexts import (
    ContextView,
    ExecutionCleared,
    ExecutionEnded,
    ExecutionError,
    ExecutionEvent,
    ExecutionKeepalive,
    ExecutionOutput,
    ExecutionResult,
    ExecutionStarted,
)

_Id = Annotated[str, Meta(min_length=1, max_length=64)]
_Text = Annotated[str, Meta(max_length=limits.PATH_BYTES_MAX)]
_Words = Annotated[str, Meta(max_length=limits.FRAME_BYTES_MAX)]
_Count = Annotated[int, Meta(ge=0, le=2**53)]
_STREAMS = {framing.STDOUT: "stdout", framing.STDERR: "stderr"}
_FIELDS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/javascript": "javascript",
}
_VALUES = {
    "application/json": "json",
    "application/vnd.atoll.data+json": "data",
    "application/vnd.atoll.chart+json": "chart",
}


class _Context(msgspec.Struct):
    id: _Id
    language: _Id
    cwd: _Text
    user: _Text
    state: Annotated[str, Meta(pattern="^(stopped|starting|idle|busy)$")]
    queued: _Count
    created_at: Annotated[float, Meta(ge=0, le=253_000_000_000)]
    execution: _Id | None = None


class _Contexts(msgspec.Struct):
    entries: Annotated[list[_Context], Meta(max_length=limits.CONTEXTS_MAX * 4)]
    languages: Annotated[list[_Id], Meta(max_length=1024)]


class _Started(msgspec.Struct):
    id: _Id
    context: _Id


class _Result(msgspec.Struct):
    data: Annotated[dict[_Text, Any], Meta(max_length=256)]
    main: bool = False
    display_id: _Text = ""
    update: bool = False


class _Bytes(msgspec.Struct):
    bytes: Annotated[int, Meta(ge=0, le=limits.EXECUTION_RESULT_BYTES_MAX)]


class _Error(msgspec.Struct):
    name: _Words
    value: _Words
    traceback: _Words


class _Cleared(msgspec.Struct):
    wait: bool


class _Ended(msgspec.Struct):
    status: Annotated[str, Meta(pattern="^(ok|error|interrupted|timed_out|died)$")]
    exit_code: Annotated[int, Meta(ge=-255, le=1024)]
    duration_s: Annotated[float, Meta(ge=0, le=1e10)]
    truncated: bool
    count: _Count | None = None


def context(value: Any) -> ContextView:
    return _context(codec.from_guest(value, _Context))


def contexts(value: Any) -> tuple[list[ContextView], list[str]]:
    words = codec.from_guest(value, _Contexts)
    return [_context(entry) for entry in words.entries], words.languages


def _context(words: _Context) -> ContextView:
    return ContextView(
        id=words.id,
        language=words.language,
        cwd=words.cwd,
        user=words.user,
        state=words.state,
        execution=words.execution,
        queued=words.queued,
        created_at=guestwords.moment(words.created_at),
    )


def started(value: Any) -> ExecutionStarted:
    words = codec.from_guest(value, _Started)
    return ExecutionStarted(id=words.id, context=words.context)


def result(payload: bytes) -> ExecutionResult:
    """A result's forms, each in the field that is made for it; the others in `extra`."""
    try:
        words = codec.from_guest(msgspec.json.decode(payload), _Result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise GuestFailed("the sandbox sent a result that is not JSON") from None
    made = ExecutionResult(main=words.main, display_id=words.display_id or None, update=words.update)
    for mime, value in words.data.items():
        if mime in _FIELDS and isinstance(value, str):
            setattr(made, _FIELDS[mime], value)
        elif mime in _VALUES and (mime == "application/json" or isinstance(value, dict)):
            setattr(made, _VALUES[mime], value)
        else:
            made.extra[mime] = value
    return made


def _error(value: Any) -> ExecutionError:
    words = codec.from_guest(value, _Error)
    return ExecutionError(name=words.name, value=words.value, traceback=words.traceback)


def _ended(value: Any) -> ExecutionEnded:
    words = codec.from_guest(value, _Ended)
    return ExecutionEnded(
        status=words.status,
        execution_count=words.count,
        exit_code=words.exit_code,
        duration_s=words.duration_s,
        truncated=words.truncated,
    )


_EVENTS: dict[str, Callable[[Any], ExecutionEvent]] = {
    "error": _error,
    "cleared": lambda value: ExecutionCleared(wait=codec.from_guest(value, _Cleared).wait),
    "keepalive": lambda _value: ExecutionKeepalive(),
}


async def events(stream: GuestStream) -> AsyncGenerator[ExecutionEvent, None]:
    """The public events of an execution, until it has ended; bounded in bytes, whatever the sandbox sends."""
    begun = False
    awaited_bytes = 0
    parts: list[bytes] = []
    left_bytes = limits.EXECUTION_BYTES_MAX * 2
    async for message in stream:
        if isinstance(message, guest.Data):
            left_bytes -= len(message.payload)
            if not begun or left_bytes < 0 or len(message.payload) > (awaited_bytes or limits.FRAME_BYTES_MAX):
                raise GuestFailed("the sandbox sent output out of turn, or too much of it")
            if message.kind != framing.OUTPUT:
                yield ExecutionOutput(stream=_STREAMS[message.kind], text=message.payload.decode("utf-8", "replace"))
                continue
            parts.append(message.payload)
            awaited_bytes -= len(message.payload)
            if awaited_bytes == 0:
                yield result(b"".join(parts))
                parts = []
        elif isinstance(message, guest.Event) and not begun:
            begun = True
            yield started(message.value)
        elif isinstance(message, guest.Event) and message.value.get("type") == "result":
            awaited_bytes = codec.from_guest(message.value, _Bytes).bytes
        elif isinstance(message, guest.Event):
            read = _EVENTS.get(str(message.value.get("type")))
            if read is not None:  # a newer guest may have more to say
                yield read(message.value)
        elif isinstance(message, guest.End) and begun:
            yield _ended(message.value)
            return
        else:
            break
    raise guestwords.ended_early()
