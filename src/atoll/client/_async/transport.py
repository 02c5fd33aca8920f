"""Requests and answers over HTTP: kept-alive connections per server, errors as ours, retries where allowed."""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import httpcore2  # noqa: F401 - httpx2 loads it at its first client: 0.3 s that belong to the import, not to a create
import httpx2
import msgspec

from atoll.client import _exchange as exchange
from atoll.client import _tls
from atoll.client._config import Config
from atoll.client._twins import AsyncShared, async_sleep
from atoll.model import limits

Answer = TypeVar("Answer")

# A server that vanished without a word (power, network) is noticed in about a minute, also on a silent stream.
_SOCKET_OPTIONS = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]


def _line(config: Config) -> httpx2.AsyncClient | httpx2.AsyncHTTPTransport:
    """Connections to a server.

    A proxy of the environment is for other machines, and so is the client that knows about it. A server on this one is
    reached directly, without what a client does around each request: cookies, redirects, authentication that asks back.
    """
    verify: ssl.SSLContext | bool = _tls.context(config) if config.is_tls else False
    bounds = httpx2.Limits(
        max_connections=limits.CLIENT_CONNECTIONS_MAX,
        max_keepalive_connections=limits.CLIENT_CONNECTIONS_MAX,
        keepalive_expiry=limits.CLIENT_IDLE_S_MAX,
    )
    if not config.is_loopback:
        return httpx2.AsyncClient(verify=verify, limits=bounds)
    return httpx2.AsyncHTTPTransport(verify=verify, limits=bounds, trust_env=False, socket_options=_SOCKET_OPTIONS)


def _timeouts(read_s: float | None) -> dict[str, float | None]:
    most_s = limits.CLIENT_ANSWER_S_MAX
    if read_s is not None and read_s > limits.TIMEOUT_S_MAX + most_s:
        read_s = None  # longer than anything may take: the server refuses it, with better words than a clock has
    return {"connect": limits.CLIENT_CONNECT_S_MAX, "read": read_s, "write": most_s, "pool": most_s}


class AsyncTransport:
    """The connections to one server. Shared by all sandboxes of one configuration; closed when the last one lets go."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._line: httpx2.AsyncClient | httpx2.AsyncHTTPTransport | None = None
        self._headers = {
            "authorization": f"Bearer {config.api_key}",
            "user-agent": "atoll-sdk",
            "accept-encoding": "identity",
        }
        self._users = 0

    @classmethod
    def acquire(cls, config: Config) -> AsyncTransport:
        """The shared one for this server. Each acquire needs its `release`."""
        with _shared.lock():
            values = _shared.values()
            transport = values.get(config)
            if transport is None:
                transport = values[config] = cls(config)
            transport._users += 1
            return transport

    async def release(self) -> None:
        with _shared.lock():
            self._users -= 1
            if self._users > 0:
                return
            values = _shared.values()
            if values.get(self.config) is self:
                del values[self.config]
            line, self._line = self._line, None
        if line is not None:
            await line.aclose()

    async def call(
        self,
        method: str,
        path: str,
        kind: type[Answer],
        body: msgspec.Struct | None = None,
        *,
        read_s: float | None = limits.CLIENT_ANSWER_S_MAX,
        idempotency_key: str = "",
    ) -> Answer:
        """One request with JSON both ways."""
        content = exchange.encode(body) if body is not None else None
        answer = await self.fetch(method, path, content, read_s=read_s, idempotency_key=idempotency_key)
        return exchange.decode(answer, kind)

    async def fetch(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        *,
        content_type: str = exchange.JSON,
        read_s: float | None = limits.CLIENT_ANSWER_S_MAX,
        idempotency_key: str = "",
    ) -> bytes:
        """One request with its body in memory, and the bytes of its answer."""
        async with self.stream(
            method, path, content, content_type=content_type, read_s=read_s, idempotency_key=idempotency_key
        ) as response:
            return await response.aread()

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        content: bytes | AsyncIterator[bytes] | None = None,
        *,
        accept: str = exchange.JSON,
        content_type: str = exchange.JSON,
        content_bytes: int | None = None,
        read_s: float | None = None,
        idempotency_key: str = "",
    ) -> AsyncIterator[httpx2.Response]:
        """One request whose answer is read by the caller. A status that is not a success is raised as its error."""
        headers = {**self._headers, "accept": accept}
        if content is not None:
            headers["content-type"] = content_type
        if content_bytes is not None:
            headers["content-length"] = str(content_bytes)
        if idempotency_key:
            headers[exchange.IDEMPOTENCY_KEY] = idempotency_key
        async with self._in_use():
            request = httpx2.Request(
                method,
                self.config.url + path,
                content=content,
                headers=headers,
                extensions={"timeout": _timeouts(read_s)},
            )
            response = await self._send(request, replayable=content is None or isinstance(content, bytes))
            try:
                if response.status_code >= 300:
                    raise exchange.answer_error(response.status_code, await response.aread())
                yield response
            except httpx2.TransportError as error:
                raise exchange.failure_error(_failure(error, sent=True), self.config.url) from error
            finally:
                await response.aclose()

    @asynccontextmanager
    async def _in_use(self) -> AsyncIterator[None]:
        """A sandbox may still be asked how it ended after its user let go of it: then for this one request."""
        with _shared.lock():
            self._users += 1
            if self._line is None:
                self._line = _line(self.config)
        try:
            yield
        finally:
            await self.release()

    async def _send(self, request: httpx2.Request, *, replayable: bool) -> httpx2.Response:
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._begin(request)
            except httpx2.TransportError as error:
                failure = _failure(error, sent=not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout))
                # With a key the server does it once, however often it is asked: as harmless as a PUT.
                method = "PUT" if exchange.IDEMPOTENCY_KEY in request.headers else request.method
                delay_s = exchange.retry_delay_s(method, failure, attempt, replayable, random.random())  # noqa: S311
                if delay_s is None:
                    raise exchange.failure_error(failure, self.config.url) from error
            await async_sleep(delay_s)

    async def _begin(self, request: httpx2.Request) -> httpx2.Response:
        assert self._line is not None, "there is one while it is in use"
        if isinstance(self._line, httpx2.AsyncClient):
            return await self._line.send(request, stream=True)
        return await self._line.handle_async_request(request)


_shared: AsyncShared[AsyncTransport] = AsyncShared()


def _failure(error: httpx2.TransportError, *, sent: bool) -> exchange.Failure:
    reason = str(error) or type(error).__name__
    return exchange.Failure(sent=sent, timed_out=isinstance(error, httpx2.TimeoutException), reason=reason)
