"""/v1/sandboxes/{sandbox}/shells: sessions whose folder, variables and functions stay from command to command."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from atoll.api.endpoint import STREAMED, Call, Endpoint, Nothing, Reply, Streamed
from atoll.api.stream import send_events, until_disconnected
from atoll.api.v1 import guestwords, insidewords
from atoll.api.v1.processes import ERRORS, STARTING, events, process_params
from atoll.api.v1.sandboxes import ONE as SANDBOX
from atoll.wire import guest
from atoll.wire import stream as encodings
from atoll.wire.node import GuestStream
from atoll.wire.public import (
    ProcessDropped,
    ProcessOutput,
    ProcessStarted,
    ShellExited,
    ShellRun,
    ShellStart,
    ShellView,
    StreamFailed,
)

ShellEvent = ProcessStarted | ProcessOutput | ProcessDropped | ShellExited | StreamFailed


async def start(call: Call[ShellStart, Nothing]) -> Reply:
    params: dict[str, Any] = {key: value for key, value in msgspec.to_builtins(call.body).items() if value is not None}
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    started = guestwords.started(await sandbox.call("process.start", {**params, "shell": True, "detach": True}))
    return Reply(ShellView(id=started.id, pid=started.pid), 201)


async def run(call: Call[ShellRun, Nothing]) -> Streamed:
    params: dict[str, Any] = {**process_params(call), "command": call.body.command}
    if call.body.timeout_s is not None:
        params["timeout_s"] = call.body.timeout_s
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])

    async def follow() -> None:
        async with sandbox.stream("shell.run", params) as stream:
            await send_events(call, _events(stream))

    await until_disconnected(call.receive, follow)
    return STREAMED


async def _events(stream: GuestStream) -> AsyncGenerator[ShellEvent, None]:
    """Offsets count from the beginning of the command: what the session wrote before is not this caller's matter."""
    first = await anext(aiter(stream))
    if not isinstance(first, guest.Event):
        raise guestwords.ended_early()
    begin = insidewords.attached(first.value).offsets
    yield guestwords.started(first.value)
    offsets = {"stdout": 0, "stderr": 0}
    async for event in events(stream, offsets, begun=True, end=insidewords.shell_exited):
        if isinstance(event, ProcessDropped):
            event.offset = max(0, event.offset - begin.get(event.stream, 0))
            offsets[event.stream] = event.offset + event.length
        yield event


async def interrupt(call: Call[Nothing, Nothing]) -> None:
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    await sandbox.call("shell.interrupt", process_params(call))


async def end(call: Call[Nothing, Nothing]) -> None:
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    await sandbox.call("process.signal", {**process_params(call), "signal": "KILL", "tree": True})


PATH = SANDBOX + "/shells"
ONE = PATH + "/{process}"

ENDPOINTS = (
    Endpoint(
        "POST",
        PATH,
        "Start a shell session",
        start,
        body=ShellStart,
        answer=ShellView,
        status=201,
        errors=STARTING,
    ),
    Endpoint(
        "POST",
        ONE + "/run",
        "Run a command in a shell session and follow it",
        run,
        body=ShellRun,
        gives={encodings.NDJSON: ShellEvent, encodings.FRAMES: None},
        errors=STARTING,
    ),
    Endpoint("POST", ONE + "/interrupt", "End the command that a session is busy with", interrupt, errors=ERRORS),
    Endpoint("DELETE", ONE, "End a shell session", end, errors=ERRORS),
)
