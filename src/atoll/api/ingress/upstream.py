"""The server inside, as one exchange of HTTP/1.1 over a dialled socket. All that it says is hostile and has bounds.

One connection for one request: a server inside never sees the request of one caller behind that of another.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import socket
from collections.abc import AsyncIterator

import anyio
import anyio.lowlevel
import h11

from atoll.api.ingress.heads import Head
from atoll.model import limits
from atoll.model.errors import GuestFailed, InvalidArgument

_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class Upstream:
    """One request and its answer. One task may send while another receives."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=limits.INGRESS_HEAD_BYTES_MAX)

    async def send_head(self, method: bytes, target: bytes, headers: Head) -> None:
        try:
            request = h11.Request(method=method, target=target, headers=headers)
        except h11.LocalProtocolError as error:
            raise InvalidArgument(f"the request cannot be passed on: {error}", code="invalid_request") from error
        await self._send(request)

    async def send_body(self, data: bytes) -> None:
        await self._send(h11.Data(data=data))

    async def send_end(self) -> None:
        await self._send(h11.EndOfMessage())

    async def _send(self, event: h11.Event) -> None:
        try:
            data = self._http.send(event)
            if data:
                await self._write(data)
        except (h11.LocalProtocolError, OSError, TimeoutError) as error:
            # A server that has answered may close before it has read all; what it answered is what counts.
            raise SendStopped from error

    async def _write(self, data: bytes) -> None:
        """Mostly there is room at once, and no clock is needed."""
        with contextlib.suppress(BlockingIOError):
            data = data[self._socket.send(data) :]
        if data:
            with anyio.fail_after(limits.TRANSFER_STALL_S_MAX):
                await self._loop.sock_sendall(self._socket, data)

    async def _read(self) -> bytes:
        """Mostly nothing is there yet, and waiting gives others their turn."""
        try:
            data = self._socket.recv(limits.INGRESS_CHUNK_BYTES)
        except BlockingIOError:
            with anyio.fail_after(limits.INGRESS_IDLE_S_MAX):
                return await self._loop.sock_recv(self._socket, limits.INGRESS_CHUNK_BYTES)
        # A server inside that never stops must not keep the loop for itself: whoever waits is served in between.
        await anyio.lowlevel.checkpoint()
        return data

    async def receive_head(self) -> h11.Response | h11.InformationalResponse:
        """The answer's head; an informational one only if it is a switch of protocols, others are passed over."""
        for _ in range(limits.INGRESS_INFORMATION_MAX):
            event = await self._receive()
            if isinstance(event, h11.Response):
                _check_head(event)
                return event
            if isinstance(event, h11.InformationalResponse):
                if event.status_code == 101:
                    return event
                continue
            raise _lost("the server inside ended the connection without an answer")
        raise GuestFailed("the server inside announces an answer without end", code="port_not_http")

    async def receive_body(self) -> AsyncIterator[bytes]:
        """Its pieces, however small the server makes them: one read may hold thousands."""
        for number in itertools.count(1):
            if number % limits.INGRESS_EVENTS_IN_TURN == 0:
                await anyio.lowlevel.checkpoint()
            event = await self._receive()
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return
            else:
                raise _lost("the server inside ended the connection in the middle of its answer")

    def rest(self) -> bytes:
        """What came behind a switch of protocols."""
        return bytes(self._http.trailing_data[0])

    async def _receive(self) -> object:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await self._read())
        except h11.RemoteProtocolError as error:
            raise GuestFailed(
                "the server inside does not speak HTTP/1.1", code="port_not_http", detail=str(error)
            ) from error
        except TimeoutError:
            raise GuestFailed("the server inside does not answer", code="port_timeout") from None
        except OSError as error:
            raise _lost("the connection to the server inside broke", str(error)) from error
        return event


def _check_head(answer: h11.Response) -> None:
    """What the library lets pass and our own server could not write."""
    if answer.status_code > 599 or any(_CONTROL.search(value) for _, value in answer.headers):
        raise GuestFailed("the server inside does not speak HTTP/1.1", code="port_not_http")


class SendStopped(Exception):
    """The server inside takes no more of the request."""


def _lost(message: str, detail: str = "") -> GuestFailed:
    return GuestFailed(message, code="port_lost", detail=detail)
