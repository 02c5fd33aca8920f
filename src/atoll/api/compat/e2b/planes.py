"""The façade as an ASGI application: finds the operation of a request, lets its caller in, and words its errors.

The three servers that E2B's clients know differ in who may call them: the control plane wants an API key, the agent and
the interpreter a token of the sandbox. What is wrong with a sandbox is told as E2B's proxy does, with status 502.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import unquote

import anyio
import structlog
from starlette.types import Message, Receive, Scope, Send

from atoll.api import authn
from atoll.api.compat.e2b import connect, cors, routing, shapes
from atoll.api.compat.e2b.ask import Ask, Operation
from atoll.api.compat.e2b.proxywords import CLOSED, GONE, TRAFFIC_HEADER, gone, port_closed
from atoll.api.compat.e2b.routing import Plane
from atoll.api.edge import exchange_of
from atoll.api.errors import ClientGone, of_exception
from atoll.api.facade import RequestHead
from atoll.api.ingress.addresses import Addresses
from atoll.api.ingress.routes import host_of
from atoll.control.service import Control
from atoll.model import limits
from atoll.model.errors import AtollError, Conflict, GuestFailed, LimitExceeded, NotFound, Unauthenticated
from atoll.model.event import Shown
from atoll.model.port import ANY_PORT
from atoll.wire import e2bkey

log = structlog.get_logger(__name__)

# Without a token or a key: one has no secrets, the other checks signatures itself.
_OPEN_PATHS: Final[Mapping[Plane, frozenset[str]]] = {
    Plane.CONTROL: frozenset({"/health"}),
    Plane.AGENT: frozenset({"/health", "/files"}),
    Plane.INTERPRETER: frozenset(),
}


# What clients of E2B know by its code, in the field that E2B has for that.
_TOLD_BY_CODE: Final = frozenset({"sandbox_snapshot_guest_agent_unresponsive"})
# What was waited for already: a client that tries again by itself would wait for it three times more.
_WAITED_FOR: Final = frozenset({"guest_unresponsive"})


class Planes:
    """All of E2B's servers in one."""

    def __init__(self, control: Control, addresses: Addresses, operations: Mapping[Plane, Sequence[Operation]]) -> None:
        self._control = control
        self._addresses = addresses
        self._tables = {plane: Table(plane, known) for plane, known in operations.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = RequestHead(host_of(scope["headers"]), scope["path"], scope["headers"])
        route = routing.route(head, self._addresses.domain)
        assert route is not None, "the façade was given a request that it does not match"
        if route.plane is Plane.AGENT:
            if cors.is_preflight(scope):
                exchange_of(scope).route = "e2b agent preflight"
                await cors.answer_preflight(scope, send)
                return
            send = cors.for_pages(send)
        request = _Request(receive)
        ask = Ask(self._control, self._addresses, scope, request, send, {}, authn.ANONYMOUS, route.sandbox_id)
        ask.templates = {**shapes.TEMPLATES, **route.templates}
        try:
            operation = self._tables[route.plane].find(ask)
            await _admit(ask, route.plane, operation)
            await operation.handler(ask)
        except ClientGone:
            raise
        except Exception as error:
            if exchange_of(scope).status:
                raise  # an answer that has begun is cut off
            if not _is_stream(ask):  # whose callers listen while they speak
                await request.hear_out()
            await _refuse(ask, route.plane, error)


class _Request:
    """What a caller sends, and whether all of it has come."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._whole = False

    async def __call__(self) -> Message:
        message = await self._receive()
        self._whole = not message.get("more_body", False)
        return message

    async def hear_out(self) -> None:
        """Before a refusal: some clients lose an answer that comes while they send. Who says much is not waited for."""
        heard_bytes = 0
        with anyio.move_on_after(limits.E2B_HEARD_OUT_S_MAX):
            while not self._whole and heard_bytes <= limits.E2B_HEARD_OUT_BYTES_MAX:
                heard_bytes += len((await self()).get("body", b""))


class Table:
    """The operations of one server by method and path."""

    def __init__(self, plane: Plane, operations: Sequence[Operation]) -> None:
        self._plane = plane
        self._exact = {(known.method, known.path): known for known in operations if "{" not in known.path}
        self._shaped = [(_shape(known.path), known) for known in operations if "{" in known.path]

    def find(self, ask: Ask) -> Operation:
        method, path = ask.scope["method"], routing.without_map(ask.scope["path"])
        found = self._exact.get((method, path))
        if found is None:
            # The path as it was sent: a template's name may hold an encoded slash.
            raw = ask.scope.get("raw_path", path.encode()).decode("ascii", "replace").partition("?")[0]
            raw = routing.without_map(raw)
            for shape, known in self._shaped:
                match = shape.fullmatch(raw) if known.method == method else None
                if match:
                    found = known
                    ask.path = match.groupdict()
                    break
        if found is None:
            raise NotFound(f"{method[:10]} {path[:200]} is not part of this API", code="unknown_route")
        exchange_of(ask.scope).route = f"e2b {self._plane.value} {found.path}"
        return found


def _shape(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]{1,400})", path))


async def _admit(ask: Ask, plane: Plane, operation: Operation) -> None:
    """Find out who calls; what shows nothing is let in only where the handler looks for itself."""
    if ask.scope["path"] in _OPEN_PATHS[plane]:
        return
    if plane is Plane.CONTROL:
        await _admit_key(ask)
        return
    tokens = ask.control.ingress.tokens
    shown = {"inside": ask.header(b"x-access-token")}
    if plane is Plane.INTERPRETER and ask.scope["path"] != "/execute":
        # Clients since 2.5 show the token of the ports, and no other, for all but running code.
        shown["ports"] = ask.header(TRAFFIC_HEADER)
        if not any(shown.values()) and await _may_be_stranger(ask):
            await ask.admit(await tokens.principal(ask.sandbox_id, Shown.NOTHING), operation.needs)
            return
    await ask.admit(await tokens.admit(ask.sandbox_id, **shown), operation.needs)


async def _may_be_stranger(ask: Ask) -> bool:
    """Clients of 2025 make a context without showing anything, because E2B's interpreter is a port like any other.

    So whoever knows the name of a sandbox whose ports are public may make one, and may ask whether it lives, and no
    more than that: to run code in it, or to touch those of others, takes a token.
    """
    if (ask.scope["method"], ask.scope["path"]) not in (("POST", "/contexts"), ("GET", "/health")):
        return False
    owner = await ask.control.ingress.tokens.principal(ask.sandbox_id)
    return (await ask.control.ingress.access(owner, ask.sandbox_id, ANY_PORT)).public


def _is_content(ask: Ask) -> bool:
    """Whether it is about what a volume holds, which a token of the volume opens."""
    return routing.without_map(ask.scope["path"]).startswith("/volumecontent/")


async def _admit_key(ask: Ask) -> None:
    if _is_content(ask) and not ask.header(b"x-api-key"):
        token = authn.key_in(ask.scope["headers"])
        volume = await ask.control.volumes.tokens.admit(unquote(ask.path["volume"]), token)
        await ask.admit(volume, authn.needed(ask.scope))
        return
    key = ask.header(b"x-api-key") or authn.key_in(ask.scope["headers"])
    if not key:
        raise Unauthenticated("no API key was given")
    ask.scope["path_params"] = ask.path
    ask.principal = await authn.principal_of(ask.scope, ask.control, key=e2bkey.read(key))


def _is_stream(ask: Ask) -> bool:
    return ask.header(b"content-type").startswith(connect.STREAM)


async def _refuse(ask: Ask, plane: Plane, error: Exception) -> None:
    told = of_exception(error)
    exchange_of(ask.scope).code = told.code
    if told is not error:
        log.error("request_crashed", route=exchange_of(ask.scope).route, exc_info=error)
    if plane is Plane.CONTROL:
        await _refuse_control(ask, told)
    elif told.code in GONE:
        await ask.answer(gone(ask.sandbox_id), 502)
    elif plane is Plane.INTERPRETER:
        await ask.answer_text(told.message, told.http_status)
    elif isinstance(told, GuestFailed) and told.code in CLOSED:
        await ask.answer(port_closed(ask.sandbox_id, routing.AGENT_PORT), 502)
    elif _is_stream(ask):
        await _refuse_stream(ask, told)
    elif ask.scope["path"].startswith(("/process.", "/filesystem.")):
        failure = connect.failure_of(told)
        await ask.answer(failure.body(), failure.status)
    else:
        status = 401 if told.code == "unknown_user" else told.http_status
        await ask.answer({"code": status, "message": told.message}, status)


async def _refuse_control(ask: Ask, told: AtollError) -> None:
    after_s = told.retry_after_s if isinstance(told, LimitExceeded) else None
    # A quota does not clear by itself; a rate does, and says when.
    again = told.retryable and told.code not in _WAITED_FOR
    if isinstance(told, LimitExceeded):
        again = after_s is not None
    headers = {"should-retry": "true" if again else "false"}
    if after_s is not None:
        headers["retry-after"] = str(max(1, round(after_s)))
    message = told.message + (f" ({told.hint})" if told.hint and not isinstance(told, NotFound | Conflict) else "")
    code = told.code if _is_content(ask) else told.http_status  # a word there, a number elsewhere
    body = {"code": code, "message": message}
    if told.code in _TOLD_BY_CODE:
        body["error_code"] = told.code
    await ask.answer(body, told.http_status, headers)


async def _refuse_stream(ask: Ask, told: AtollError) -> None:
    body = connect.end(connect.failure_of(told))
    headers = [(b"content-type", connect.STREAM.encode("ascii")), (b"content-length", str(len(body)).encode("ascii"))]
    await ask.send({"type": "http.response.start", "status": 200, "headers": headers})
    await ask.send({"type": "http.response.body", "body": body})
