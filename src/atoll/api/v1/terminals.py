"""/v1/sandboxes/{sandbox}/terminals: programs on a terminal, and the WebSocket that a person sits at."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec

from atoll.api.endpoint import Call, Endpoint, Nothing, Reply
from atoll.api.socket import Socket, guarded, upgrade_missing
from atoll.api.v1 import guestwords, insidewords
from atoll.api.v1.processes import ERRORS, STARTING, process_params
from atoll.api.v1.sandboxes import ONE as SANDBOX
from atoll.model import limits
from atoll.model.errors import Conflict, InvalidArgument
from atoll.wire import codec, guest
from atoll.wire.node import GuestStream
from atoll.wire.public import (
    ProcessStarted,
    TerminalAttached,
    TerminalDropped,
    TerminalOrder,
    TerminalRefused,
    TerminalResize,
    TerminalStart,
    TerminalTicket,
)
from atoll.wire.public.terminals import exited


class AttachQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Where to begin: at a byte offset, or with the newest `tail_bytes`, from which a screen is restored."""

    offset: int | None = None
    tail_bytes: int = limits.TERMINAL_TAIL_BYTES
    cols: int | None = None
    rows: int | None = None
    ticket: str = ""


async def start(call: Call[TerminalStart, Nothing]) -> Reply:
    body = call.body
    if body.argv is not None and body.cmd is not None:
        raise InvalidArgument("give argv or cmd, not both", code="invalid_body")
    params: dict[str, Any] = {key: value for key, value in msgspec.to_builtins(body).items() if value is not None}
    size = {"cols": params.pop("cols", 80), "rows": params.pop("rows", 24)}
    params = {"login": body.login, **params, "pty": size, "detach": True}
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    return Reply(guestwords.started(await sandbox.call("process.start", params)), 201)


async def ticket(call: Call[Nothing, Nothing]) -> Reply:
    await call.control.guest(call.principal, call.path["sandbox"])
    minted, expires_at = call.control.tickets.issue(call.principal, call.scope["path"].removesuffix("/ticket"))
    return Reply(TerminalTicket(ticket=minted, expires_at=expires_at), 201)


async def not_upgraded(call: Call[Nothing, AttachQuery]) -> None:
    await call.control.guest(call.principal, call.path["sandbox"])
    raise upgrade_missing()


async def attach(call: Call[Nothing, AttachQuery]) -> None:
    """Follow a terminal and type into it, until its program ends or the caller leaves. The program goes on."""
    query = call.query
    where = {"tail_bytes": query.tail_bytes} if query.offset is None else {"stdout_offset": query.offset}
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    socket = Socket(call.receive, call.send, call.request_id)

    async def session() -> None:
        with call.control.accounts.keys.ends.open_by(call.principal.key_id):
            async with sandbox.stream("process.attach", {**process_params(call), **where}) as stream:
                messages = aiter(stream)
                attached = _attached(await anext(messages))
                await socket.accept()
                await socket.send_text(attached)
                if query.cols is not None and query.rows is not None:
                    await stream.send_control({"do": "resize", "cols": query.cols, "rows": query.rows})
                await _both_ways(socket, stream, messages)

    await guarded(socket, session)


def _attached(message: guest.Message) -> TerminalAttached:
    if not isinstance(message, guest.Event):
        raise guestwords.ended_early()
    words = insidewords.attached(message.value)
    if not words.pty:
        raise Conflict("the process has no terminal", code="no_terminal", hint="Follow its output instead.")
    return TerminalAttached(id=words.id, pid=words.pid, offset=words.offsets.get("stdout", 0))


async def _both_ways(socket: Socket, stream: GuestStream, messages: Any) -> None:
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:

        async def typed() -> None:
            nonlocal failure
            try:
                while True:
                    await _take(await socket.receive(), stream)
            except Exception as error:  # carried out of the group as it is, not wrapped in a group of exceptions
                failure = failure or error
                tasks.cancel_scope.cancel()

        tasks.start_soon(typed)
        try:
            await _show(socket, messages)
        except Exception as error:
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _take(message: bytes | str, stream: GuestStream) -> None:
    if isinstance(message, bytes):
        await stream.send(message)
        return
    order: TerminalOrder = codec.decode(message.encode("utf-8", "surrogatepass"), TerminalOrder)  # type: ignore[arg-type]
    if isinstance(order, TerminalResize):
        await stream.send_control({"do": "resize", "cols": order.cols, "rows": order.rows})
    else:
        await stream.send_control({"do": "signal", "signal": order.signal, "group": True})


async def _show(socket: Socket, messages: Any) -> None:
    async for message in messages:
        if isinstance(message, guest.Data):
            await socket.send_bytes(message.payload)
        elif isinstance(message, guest.End):
            await socket.send_text(exited(guestwords.exited(message.value)))
            await socket.close()
            return
        elif isinstance(message, guest.Event):
            await _tell(socket, message.value)
    raise guestwords.ended_early()


async def _tell(socket: Socket, value: dict[str, Any]) -> None:
    kind = value.get("type")
    if kind == "dropped":
        gap = guestwords.dropped(value)
        await socket.send_text(TerminalDropped(offset=gap.offset, length=gap.length))
    elif kind == "refused":
        await socket.send_text(TerminalRefused(problem=socket.problem(guestwords.refused(value))))


PATH = SANDBOX + "/terminals"
ONE = PATH + "/{process}"

ENDPOINTS = (
    Endpoint(
        "POST",
        PATH,
        "Start a program on a terminal",
        start,
        body=TerminalStart,
        answer=ProcessStarted,
        status=201,
        errors=STARTING,
    ),
    Endpoint(
        "GET",
        ONE,
        "Sit down at a terminal, by WebSocket",
        not_upgraded,
        query=AttachQuery,
        gives={"application/octet-stream": None},
        errors=(InvalidArgument, *ERRORS),
        needs="write",
        upgrade=attach,
    ),
    Endpoint(
        "POST",
        ONE + "/ticket",
        "Make a ticket that opens the WebSocket of a terminal once",
        ticket,
        answer=TerminalTicket,
        status=201,
        errors=ERRORS,
    ),
)
