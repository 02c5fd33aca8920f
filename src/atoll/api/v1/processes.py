"""/v1/sandboxes/{sandbox}/processes: start, follow, list, signal, and write to standard input."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec

from atoll.api.endpoint import STREAMED, Call, Endpoint, Nothing, Reply, Streamed
from atoll.api.stream import body_chunks, send_events, until_disconnected
from atoll.api.v1 import guestwords
from atoll.api.v1.sandboxes import ONE as SANDBOX
from atoll.model import limits
from atoll.model.errors import Conflict, DeadlineExceeded, GuestFailed, InvalidArgument, NotFound, TooLarge
from atoll.wire import framing, guest
from atoll.wire import stream as encodings
from atoll.wire.node import GuestStream
from atoll.wire.public import (
    InputWritten,
    ProcessEvent,
    ProcessList,
    ProcessOutput,
    ProcessSignal,
    ProcessStart,
    ProcessStarted,
    ProcessView,
    PtySize,
)

_STREAMS = {framing.STDOUT: "stdout", framing.STDERR: "stderr"}


class StartQuery(msgspec.Struct, forbid_unknown_fields=True):
    """With `follow=false` the answer is the process, not the stream of its events."""

    follow: bool = True


class OutputQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Where to go on reading, in bytes from the beginning of each stream; with `follow=false`, what there is now."""

    stdout_offset: int = 0
    stderr_offset: int = 0
    follow: bool = True


class StdinQuery(msgspec.Struct, forbid_unknown_fields=True):
    """With `close=true` the process reads the end of its input after these bytes. `offset` is where they stand in it:
    what it was given already is passed over, so that they may be sent again.
    """

    close: bool = False
    offset: int | None = None


async def start(call: Call[ProcessStart, StartQuery]) -> Reply | Streamed:
    params = start_params(call.body)
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    if not call.query.follow:
        if call.body.kill_on_disconnect:
            raise InvalidArgument("kill_on_disconnect needs a caller who follows", code="invalid_body")
        value = await sandbox.call("process.start", {**params, "detach": True})
        return Reply(guestwords.started(value), 201)

    async def follow() -> None:
        async with sandbox.stream("process.start", params) as stream:
            await send_events(call, events(stream, {"stdout": 0, "stderr": 0}))

    await until_disconnected(call.receive, follow)
    return STREAMED


async def output(call: Call[Nothing, OutputQuery]) -> Streamed:
    offsets = {"stdout": call.query.stdout_offset, "stderr": call.query.stderr_offset}
    where = {f"{name}_offset": offset for name, offset in offsets.items()}
    params = {**process_params(call), **where, "until_now": not call.query.follow}
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])

    async def follow() -> None:
        async with sandbox.stream("process.attach", params) as stream:
            await send_events(call, events(stream, offsets))

    await until_disconnected(call.receive, follow)
    return STREAMED


async def list_all(call: Call[Nothing, Nothing]) -> ProcessList:
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    async with sandbox.stream("process.list", {}) as stream:
        found = guestwords.entries(stream, limits.LIST_ENTRIES_MAX)
        return ProcessList(items=[guestwords.process(entry) async for entry in found])


async def show(call: Call[Nothing, Nothing]) -> ProcessView:
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    return guestwords.process(await sandbox.call("process.show", process_params(call)))


async def resize(call: Call[PtySize, Nothing]) -> None:
    params = {**process_params(call), "cols": call.body.cols, "rows": call.body.rows}
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    await sandbox.call("process.resize", params)


async def signal(call: Call[ProcessSignal, Nothing]) -> None:
    wanted = call.body
    params = {**process_params(call), "signal": wanted.signal, "group": wanted.group, "tree": wanted.tree}
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    await sandbox.call("process.signal", params)


async def stdin(call: Call[Nothing, StdinQuery]) -> InputWritten:
    params = {**process_params(call), "close": call.query.close}
    if call.query.offset is not None:
        params["offset"] = call.query.offset
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    async with sandbox.stream("process.stdin", params) as stream:
        return guestwords.written(await upload(call, stream))


async def upload(call: Call[Any, Any], stream: GuestStream) -> dict[str, Any]:
    """Pass the request's body on as it comes, then commit; what the guest says to it."""
    async for chunk in body_chunks(call.receive):
        await stream.send(chunk)
    await stream.commit()
    async for message in stream:
        if isinstance(message, guest.Ok | guest.End):
            return message.value
    raise guestwords.ended_early()


async def events(
    stream: GuestStream,
    offsets: dict[str, int],
    *,
    begun: bool = False,
    end: Callable[[Any], Any] = guestwords.exited,
) -> AsyncGenerator[Any, None]:
    """The public events of a followed process: started, output and gaps, exited. Nothing after the exit is read."""
    async for message in stream:
        if isinstance(message, guest.Data):
            name = _STREAMS.get(message.kind)
            if name is None or not begun:
                raise GuestFailed("the sandbox sent output out of turn")
            yield ProcessOutput(stream=name, offset=offsets[name], data=message.payload)
            offsets[name] += len(message.payload)
        elif isinstance(message, guest.Event):
            event = _event(message.value, begun=begun, offsets=offsets)
            if event is not None:
                yield event
            begun = True
        elif isinstance(message, guest.End) and begun:
            if "running" not in message.value:
                yield end(message.value)
            return
        else:
            break
    raise guestwords.ended_early()


def _event(value: dict[str, Any], *, begun: bool, offsets: dict[str, int]) -> ProcessEvent | None:
    kind = value.get("type")
    if not begun:
        if kind not in ("started", "attached"):
            raise GuestFailed("the sandbox did not say which process it started")
        return guestwords.started(value)
    if kind == "dropped":
        gap = guestwords.dropped(value)
        offsets[gap.stream] = gap.offset + gap.length
        return gap
    return None  # a newer guest may have more to say


def start_params(body: ProcessStart) -> dict[str, Any]:
    """The guest's parameters; it checks them once more, because it is the one that acts on them."""
    if (body.argv is None) == (body.cmd is None) and not (body.pty and body.argv is None):
        raise InvalidArgument("give exactly one of argv and cmd", code="invalid_body")
    params: dict[str, Any] = msgspec.to_builtins(body)
    return {key: value for key, value in params.items() if value is not None}


def process_params(call: Call[Any, Any]) -> dict[str, Any]:
    """A process by its id, by its number inside the sandbox, or by `tag:` and its tag (the newest of several)."""
    reference = call.path["process"]
    if reference.startswith("tag:"):
        return {"tag": reference[4 : 5 + limits.TAG_CHARS_MAX]}
    if reference.isascii() and reference.isdigit() and len(reference) <= 10:
        return {"pid": int(reference)}
    return {"id": reference[:64]}


PATH = SANDBOX + "/processes"
ONE = PATH + "/{process}"
_EVENTS = {encodings.NDJSON: ProcessEvent, encodings.FRAMES: None}
ERRORS = (NotFound, Conflict, GuestFailed)
STARTING = (*ERRORS, InvalidArgument, DeadlineExceeded)

ENDPOINTS = (
    Endpoint(
        "POST",
        PATH,
        "Start a process and follow it until it ends",
        start,
        body=ProcessStart,
        query=StartQuery,
        answer=ProcessStarted,
        status=201,
        gives=_EVENTS,
        errors=STARTING,
    ),
    Endpoint("GET", PATH, "List processes", list_all, answer=ProcessList, errors=(*ERRORS, TooLarge)),
    Endpoint("GET", ONE, "Show a process", show, answer=ProcessView, errors=ERRORS),
    Endpoint("POST", ONE + "/resize", "Tell a terminal its new size", resize, body=PtySize, errors=ERRORS),
    Endpoint(
        "GET",
        ONE + "/output",
        "Follow a process from an offset on",
        output,
        query=OutputQuery,
        gives=_EVENTS,
        errors=ERRORS,
    ),
    Endpoint("POST", ONE + "/signal", "Send a signal to a process", signal, body=ProcessSignal, errors=ERRORS),
    Endpoint(
        "POST",
        ONE + "/stdin",
        "Write to a process's standard input",
        stdin,
        query=StdinQuery,
        answer=InputWritten,
        takes="application/octet-stream",
        errors=(*ERRORS, DeadlineExceeded),
    ),
)
