"""Typed endpoints: what a route takes and gives is said once, checked here, and described from the same words.

An endpoint names its method, path, body, query and answer; its handler gets a `Call` with values of those types. What
does not fit never reaches a handler.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast, get_origin
from urllib.parse import parse_qsl

import msgspec
import structlog
from starlette.types import Receive, Scope, Send

from atoll.api import authn
from atoll.api.edge import exchange_of
from atoll.api.errors import ClientGone
from atoll.control.service import Control, Principal
from atoll.model import limits
from atoll.model.errors import AtollError, InvalidArgument, MethodNotAllowed, TooLarge
from atoll.wire import codec


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """No body, or no query parameters."""


B = TypeVar("B", bound=msgspec.Struct)
Q = TypeVar("Q", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Call(Generic[B, Q]):
    """One request, read and checked."""

    control: Control
    principal: Principal
    path: Mapping[str, str]
    query: Q
    body: B
    scope: Scope
    receive: Receive
    send: Send

    @property
    def request_id(self) -> str:
        return exchange_of(self.scope).request_id

    def is_about(self, sandbox_id: str) -> None:
        """For the log and for traces: the sandbox that this request has made."""
        exchange_of(self.scope).sandbox = sandbox_id
        structlog.contextvars.bind_contextvars(sandbox_id=sandbox_id)

    def header(self, name: bytes) -> str:
        return next((value.decode("latin-1") for key, value in self.scope["headers"] if key == name), "")


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer with a status of its own, or bytes that are no JSON of ours."""

    body: msgspec.Struct | bytes
    status: int = 200
    media_type: str = "application/json"


class Streamed:
    """What a handler returns that has sent its answer itself."""


STREAMED = Streamed()

Answered = msgspec.Struct | Reply | Streamed | None


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[B, Q]):
    """One operation of the API."""

    method: str
    path: str
    summary: str
    handler: Callable[[Call[B, Q]], Awaitable[Answered]]
    body: type[B] = cast(type[B], Nothing)  # noqa: RUF009 - a class, not a call
    query: type[Q] = cast(type[Q], Nothing)  # noqa: RUF009
    answer: type[msgspec.Struct] | None = None
    status: int = 200
    errors: tuple[type[AtollError], ...] = ()
    public: bool = False
    needs: str = ""
    """The scope that a caller's key must have; without one: read for GET, write for all else."""
    takes: str = ""
    """The media type of a body that is not JSON; the handler reads it itself."""
    gives: Mapping[str, Any] = field(default_factory=dict)
    """Answers that are not JSON: media type to type, or to None for plain bytes."""
    upgrade: Callable[[Call[B, Q]], Awaitable[None]] | None = None
    """What answers a WebSocket on this path; its caller may show a ticket in the query in place of a key."""

    async def run(self, control: Control, scope: Scope, receive: Receive, send: Send) -> None:
        principal = authn.ANONYMOUS if self.public else await authn.principal_of(scope, control, self.needs)
        query = query_decode(scope["query_string"], self.query)
        body = cast(B, Nothing())
        if self.body is not Nothing:
            body = codec.decode(await read_body(scope, receive) or b"{}", self.body)
        call = Call(control, principal, scope["path_params"], query, body, scope, receive, send)
        answered = await self.handler(call)
        if not isinstance(answered, Streamed):
            await send_reply(answered, self.status, send)

    async def run_upgrade(self, control: Control, scope: Scope, receive: Receive, send: Send) -> None:
        assert self.upgrade is not None
        query = query_decode(scope["query_string"], self.query)
        scope["method"] = self.method
        ticket = getattr(query, "ticket", "")
        if ticket:
            bearer = control.tickets.redeem(ticket, scope["path"])
            principal = authn.admit(bearer, scope, control, self.needs or authn.needed(scope))
        else:
            principal = await authn.principal_of(scope, control, self.needs)
        nothing = cast(B, Nothing())
        await self.upgrade(Call(control, principal, scope["path_params"], query, nothing, scope, receive, send))


class Resource:
    """All operations on one path, as an ASGI application."""

    def __init__(self, control: Control, path: str, endpoints: Mapping[str, Endpoint[Any, Any]]) -> None:
        self._control = control
        self._path = path
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange_of(scope).route = self._path
        if scope["type"] == "websocket":
            await self._endpoints["GET"].run_upgrade(self._control, scope, receive, send)
            return
        endpoint = self._endpoints.get(scope["method"])
        if endpoint is None:
            allowed = tuple(sorted(self._endpoints))
            raise MethodNotAllowed(
                f"{scope['method'][:20]} is not possible here",
                allowed=allowed,
                hint=f"Possible here: {', '.join(allowed)}.",
            )
        await endpoint.run(self._control, scope, receive, send)


async def send_reply(answered: msgspec.Struct | Reply | None, status: int, send: Send) -> None:
    if answered is None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        return
    reply = answered if isinstance(answered, Reply) else Reply(answered, status)
    body = reply.body if isinstance(reply.body, bytes) else codec.encode(reply.body)
    headers = [
        (b"content-type", reply.media_type.encode("ascii")),
        (b"content-length", str(len(body)).encode("ascii")),
    ]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def read_body(scope: Scope, receive: Receive) -> bytes:
    """A small body, whole; TooLarge as soon as it is known to be over the bound."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value[:20]) > limits.JSON_BODY_BYTES_MAX:
            raise _body_too_large()
    parts = []
    size_bytes = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size_bytes += len(part)
        if size_bytes > limits.JSON_BODY_BYTES_MAX:
            raise _body_too_large()
        parts.append(part)
        more = message.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _body_too_large() -> TooLarge:
    return TooLarge(
        f"the body is larger than {limits.JSON_BODY_BYTES_MAX} bytes", hint="Large things are files: write a file."
    )


def query_decode(query_string: bytes, kind: type[Q]) -> Q:
    """Query parameters as a typed value. Bytes that are not UTF-8 (names of files) become surrogate escapes."""
    if not query_string and kind is Nothing:
        return cast(Q, Nothing())
    try:
        pairs = parse_qsl(
            query_string.decode("ascii", "replace"),
            keep_blank_values=True,
            errors="surrogateescape",
            max_num_fields=limits.QUERY_FIELDS_MAX,
        )
    except ValueError:
        raise InvalidArgument("too many query parameters", code="invalid_query") from None
    several = _list_fields(kind)
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in several:
            values.setdefault(name, []).append(value)
        elif name in values:
            raise InvalidArgument(f"{name[:40]!r} is given twice", code="invalid_query")
        else:
            values[name] = value
    return codec.query(values, kind)


@functools.cache
def _list_fields(kind: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset(item.name for item in msgspec.structs.fields(kind) if get_origin(item.type) is list)
