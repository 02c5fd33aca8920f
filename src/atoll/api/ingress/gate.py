"""The gate: requests that name a port of a sandbox go through it, all others to the API.

It is ASGI inside the edge, so that what fails before an answer has begun is a problem with its own code: no such
sandbox, not running, port closed, not allowed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import anyio
import h11
from anyio.lowlevel import checkpoint
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from atoll.api.connection import ABORT, EXTENSION, RawConnection
from atoll.api.edge import exchange_of
from atoll.api.errors import ClientGone
from atoll.api.ingress import heads, tunnel
from atoll.api.ingress.routes import Refusal, Routes, Target
from atoll.api.ingress.upstream import SendStopped, Upstream
from atoll.control.ingress import Ingress, Knock, Visit
from atoll.model import limits
from atoll.model.errors import AtollError, GuestFailed
from atoll.wire import codec, porttoken

ROUTE = "port"  # as metrics and log call it: ids would make a series for each sandbox


class Gate:
    """Before the API's own routes."""

    def __init__(self, app: ASGIApp, ingress: Ingress, routes: Routes) -> None:
        self._app = app
        self._ingress = ingress
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        target = self._routes.find(scope["headers"]) if scope["type"] == "http" else None
        if target is None:
            await self._app(scope, receive, send)
            return
        exchange_of(scope).route = ROUTE
        try:
            await self._let_in(scope, receive, send, target)
        except AtollError as error:
            if target.refusal is None or exchange_of(scope).status:
                raise
            if target.refuses_its_own and not await self._ingress.has_common_rules(target.sandbox_id):
                raise
            exchange_of(scope).code = error.code
            await _refuse(target.refusal(error), send)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send, target: Target) -> None:
        shown = heads.credentials(scope["headers"], scope["query_string"], target)
        source = (scope.get("client") or ("",))[0]
        knock = Knock(target.sandbox_id, target.port, shown.key, shown.token, source)
        admission = await self._ingress.admit(knock)
        if shown.in_query and scope["method"] in ("GET", "HEAD") and EXTENSION not in scope.get("extensions", {}):
            await _send_cookie(scope, shown.token, send)
            return
        with self._ingress.visit(admission) as visit:
            sock = await self._ingress.dial(target.sandbox_id, target.port)
            passage = Passage(
                scope, receive, send, target, admission.access.host_for(target.port), visit, self._ingress
            )
            try:
                await passage.run(Upstream(sock))
                if passage.switched is not None:
                    visit.upgraded()
                    await tunnel.join(passage.switched, sock, visit, self._ingress)
            finally:
                sock.close()
                if passage.switched is not None:
                    tunnel.hang_up(passage.switched, visit)


@dataclass(slots=True)
class Passage:
    """One request on its way in and its answer on its way out."""

    scope: Scope
    receive: Receive
    send: Send
    target: Target
    mask: str
    visit: Visit
    ingress: Ingress
    switched: RawConnection | None = None
    """The caller's connection, once both sides have agreed to speak something else."""
    answering: bool = False
    """The server inside has begun to answer: the rest of the request may come as slowly as it suits them both."""

    async def run(self, upstream: Upstream) -> None:
        """Pass body and answer on at the same time: either may be long, and either may wait for the other."""
        upgrade = self._upgrade()
        failure: Exception | None = ClientGone()
        async with anyio.create_task_group() as tasks:

            async def feed() -> None:
                try:
                    await self._pass_request(upstream)
                except SendStopped:
                    await self._wait_gone()
                if self.switched is None:
                    tasks.cancel_scope.cancel()  # the caller has left

            async def watch() -> None:
                await self._wait_gone()
                tasks.cancel_scope.cancel()

            begin = asyncio.get_running_loop().call_later
            timer: asyncio.TimerHandle | None = None
            try:
                await self._send_head(upstream, upgrade)
                if upgrade or self._has_body():
                    tasks.start_soon(feed)
                else:
                    # Most requests have no body and are answered at once: nobody has to watch whether the caller stays.
                    await upstream.send_end()
                    timer = begin(limits.INGRESS_WATCH_S, tasks.start_soon, watch)
                await self._pass_answer(upstream)
                failure = None
            except SendStopped as error:
                failure = GuestFailed("the server inside takes no request", code="port_lost", detail=repr(error))
            except Exception as error:  # carried out of the group as it is, not wrapped in a group of exceptions
                failure = error
            finally:
                if timer is not None:
                    timer.cancel()
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    def _has_body(self) -> bool:
        framing = {b"content-length", b"transfer-encoding"}
        return any(name in framing and value != b"0" for name, value in self.scope["headers"])

    def _upgrade(self) -> bytes:
        if EXTENSION not in self.scope.get("extensions", {}):
            return b""
        return next((value for name, value in self.scope["headers"] if name == b"upgrade"), b"")

    async def _send_head(self, upstream: Upstream, upgrade: bytes) -> None:
        client = self.scope.get("client")
        head = heads.request_head(
            self.scope["headers"],
            self.target,
            mask=self.mask,
            scheme=self.scope.get("scheme", "http"),
            client=client[0] if client else "",
            upgrade=upgrade,
        )
        names = {name for name, _ in head}
        chunked = any(name == b"transfer-encoding" for name, _ in self.scope["headers"])
        if chunked and b"content-length" not in names:
            head.append((b"transfer-encoding", b"chunked"))
        query = heads.query_without_token(self.scope["query_string"])
        path = self.scope["raw_path"] + (b"?" + query if query else b"")
        await upstream.send_head(self.scope["method"].encode("ascii"), path, head)

    async def _pass_request(self, upstream: Upstream) -> None:
        more = True
        while more:
            message = await self._from_caller()
            if message["type"] == "http.disconnect":
                return
            if message.get("body"):
                await self._stir()
                self.visit.bytes_in += len(message["body"])
                await upstream.send_body(message["body"])
            more = message.get("more_body", False)
        await upstream.send_end()
        await self._wait_gone()

    async def _stir(self) -> None:
        """Before something goes in: the sandbox may have been put in standby since the request began."""
        if self.ingress.stands_still(self.visit):
            try:
                await self.ingress.wake(self.visit)
            except AtollError as error:
                raise SendStopped(repr(error)) from error

    async def _from_caller(self) -> Message:
        """The next piece of the request. A caller who says nothing while all wait for it is taken for gone."""
        while True:
            with anyio.move_on_after(limits.INGRESS_UPLOAD_PAUSE_S_MAX):
                return await self.receive()
            if not self.answering:
                self._abort()
                await checkpoint()  # the HTTP server hears of it, and answers nobody
                return {"type": "http.disconnect"}

    async def _to_caller(self, message: Message) -> None:
        """Pass a piece of the answer on. A caller who does not read is taken for gone."""
        with anyio.move_on_after(limits.TRANSFER_STALL_S_MAX) as time_limit:
            await self.send(message)
        if time_limit.cancelled_caught:
            self._abort()
            raise ClientGone

    def _abort(self) -> None:
        """End HTTP/1.1 with its connection, whose close would wait for such a caller. A stream of HTTP/2 just ends."""
        abort = self.scope.get(ABORT)
        if abort is not None:
            abort()

    async def _wait_gone(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def _pass_answer(self, upstream: Upstream) -> None:
        answer = await upstream.receive_head()
        has_body = answer.status_code not in (101, 204, 304)
        head = heads.answer_head(answer.headers, mask=self.mask, has_body=has_body)
        if isinstance(answer, h11.InformationalResponse):
            await self._switch(answer, head, upstream)
            return
        self.answering = True
        await self._to_caller({"type": "http.response.start", "status": answer.status_code, "headers": head})
        async for data in upstream.receive_body():
            self.visit.bytes_out += len(data)
            for start in range(0, len(data), limits.INGRESS_ANSWER_BYTES):
                part = data[start : start + limits.INGRESS_ANSWER_BYTES]
                await self._to_caller({"type": "http.response.body", "body": part, "more_body": True})
        await self._to_caller({"type": "http.response.body", "body": b""})

    async def _switch(self, answer: h11.InformationalResponse, head: heads.Head, upstream: Upstream) -> None:
        raw = self.scope["extensions"][EXTENSION]()
        assert isinstance(raw, RawConnection)
        self.switched = raw
        exchange_of(self.scope).status = 101
        agreed = next((value for name, value in answer.headers if name == b"upgrade"), self._upgrade())
        lines = [*head, (b"connection", b"upgrade"), (b"upgrade", agreed)]
        text = b"".join(name + b": " + value + b"\r\n" for name, value in lines)
        await raw.send(b"HTTP/1.1 101 Switching Protocols\r\n" + text + b"\r\n" + upstream.rest())


async def _refuse(refusal: Refusal, send: Send) -> None:
    body = codec.encode(refusal.body)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode("ascii"))]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _send_cookie(scope: Scope, token: str, send: Send) -> None:
    """A browser goes on with a cookie and without the token in its address, where it could be seen and passed on."""
    query = heads.query_without_token(scope["query_string"])
    location = b"/" + scope["raw_path"].lstrip(b"/") + (b"?" + query if query else b"")
    cookie = heads.token_cookie(token, porttoken.expiry_s(token), secure=scope.get("scheme") == "https")
    headers = [
        (b"location", location),
        (b"set-cookie", cookie),
        (b"cache-control", b"no-store"),
        (b"referrer-policy", b"no-referrer"),
        (b"content-length", b"0"),
    ]
    await send({"type": "http.response.start", "status": 307, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
