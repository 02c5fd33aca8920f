"""/v1/sandboxes/{sandbox}/ports: which listen inside, wait until one does, and hear when one opens or closes."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec

from atoll.api.endpoint import STREAMED, Call, Endpoint, Nothing, Streamed
from atoll.api.stream import send_events, until_disconnected
from atoll.api.v1 import guestwords, insidewords
from atoll.api.v1.sandboxes import ONE as SANDBOX
from atoll.model.errors import Conflict, DeadlineExceeded, GuestFailed, InvalidArgument, NotFound
from atoll.wire import guest
from atoll.wire import stream as encodings
from atoll.wire.node import GuestStream
from atoll.wire.public import PortEvent, PortList, PortOpened, PortsListening


class WaitQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How long to wait."""

    timeout_s: float = 30.0


async def list_all(call: Call[Nothing, Nothing]) -> PortList:
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    return PortList(items=insidewords.ports(await sandbox.call("ports.list", {})))


async def wait(call: Call[Nothing, WaitQuery]) -> PortList:
    number = call.path["port"]
    if not number.isascii() or not number.isdigit() or not 1 <= int(number[:6]) <= 65535:
        raise InvalidArgument(f"{number[:20]!r} is not a port", code="invalid_port")
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    found: list[PortList] = []

    async def listen() -> None:
        params = {"port": int(number), "timeout_s": call.query.timeout_s}
        async with sandbox.stream("ports.wait", params) as stream:
            message = await anext(aiter(stream))
            if isinstance(message, guest.Ok):
                found.append(PortList(items=insidewords.ports(message.value)))

    await until_disconnected(call.receive, listen)
    if not found:
        raise guestwords.ended_early()
    return found[0]


async def watch(call: Call[Nothing, Nothing]) -> Streamed:
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])

    async def follow() -> None:
        async with sandbox.stream("ports.watch", {}) as stream:
            await send_events(call, _events(stream))

    await until_disconnected(call.receive, follow)
    return STREAMED


async def _events(stream: GuestStream) -> AsyncGenerator[PortEvent, None]:
    async for message in stream:
        if not isinstance(message, guest.Event):
            break
        match message.value.get("type"):
            case "ports":
                yield PortsListening(items=insidewords.ports(message.value))
            case "opened":
                yield PortOpened(port=insidewords.port(message.value))
            case "closed":
                yield insidewords.port_closed(message.value)
    raise guestwords.ended_early()


PATH = SANDBOX + "/ports"
_ERRORS = (NotFound, Conflict, GuestFailed)

ENDPOINTS = (
    Endpoint("GET", PATH, "List the ports that listen", list_all, answer=PortList, errors=_ERRORS),
    Endpoint(
        "GET",
        PATH + "/events",
        "Hear when ports open and close",
        watch,
        gives={encodings.NDJSON: PortEvent, encodings.FRAMES: None},
        errors=_ERRORS,
    ),
    Endpoint(
        "GET",
        PATH + "/{port}",
        "Wait until a port listens",
        wait,
        query=WaitQuery,
        answer=PortList,
        errors=(InvalidArgument, DeadlineExceeded, *_ERRORS),
    ),
)
