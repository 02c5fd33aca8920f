"""The HTTP server's side of one connection: heads have a bound, and an application can take a connection over.

Where client and server have agreed on HTTP/2 by TLS, `Http2Connection` takes the place of what is here.

Where a request asks for an upgrade that `claims` knows, the application gets it as a plain request with the extension
`atoll.upgrade` in its scope. It may answer as usual; or it calls the extension, and from then on the connection is a
`RawConnection` that it reads, writes and closes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from atoll.api.http2.connection import ALPN, Http2Connection
from atoll.model import limits

EXTENSION = "atoll.upgrade"
ABORT = "atoll.abort"
"""In the scope of a request: what closes its connection without a word, also where the caller does not read."""

Claims = Callable[[list[tuple[bytes, bytes]]], bool]


class RawConnection(asyncio.Protocol):
    """A connection without a protocol: bytes both ways, with back-pressure."""

    def __init__(self, transport: asyncio.Transport, early: bytes, on_lost: Callable[[Exception | None], None]) -> None:
        self._transport = transport
        self._on_lost = on_lost
        self._buffer = bytearray(early)
        self._ended = self._lost = False
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        if early:
            self._arrived.set()

    async def receive(self) -> bytes:
        """What has come, at least one byte of it; nothing at the end. BrokenPipeError if the peer is gone."""
        while not self._buffer and not self._ended:
            self._arrived.clear()
            self._transport.resume_reading()
            await self._arrived.wait()
        if not self._buffer and self._lost:
            raise BrokenPipeError
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    async def send(self, data: bytes) -> None:
        """Write, and wait while the peer does not read. BrokenPipeError if it is gone."""
        await self._writable.wait()
        if self._lost or self._transport.is_closing():
            raise BrokenPipeError
        self._transport.write(data)

    def send_end(self) -> None:
        """No more bytes will come from here. TLS cannot say that of one direction, so there it is the end of both."""
        if self._transport.is_closing():
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        """Close without a word, also to a peer that does not read."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._arrived.set()
        if len(self._buffer) >= limits.INGRESS_CHUNK_BYTES:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._ended = True
        self._arrived.set()
        return self._transport.can_write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = self._lost = True
        self._arrived.set()
        self._writable.set()
        self._on_lost(exc)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()


class Connection(HttpToolsProtocol):
    """uvicorn's connection with the two additions."""

    def __init__(self, *arguments: Any, claims: Claims, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._claims = claims
        self._claimed: bool = False
        self._raw: RawConnection | None = None
        self._early = b""
        self._in_head = False
        self._head_bytes = 0
        self._head_too_large = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        tls = transport.get_extra_info("ssl_object")
        if tls is None or tls.selected_alpn_protocol() != ALPN:
            super().connection_made(transport)
            return
        successor = Http2Connection(self.config, self.server_state, self.app_state)
        transport.set_protocol(successor)
        successor.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._claimed:  # sent before it was told whether the upgrade happens
            self._early += data
            self.transport.pause_reading()
            return
        self._unset_keepalive_if_required()
        in_head = self._in_head
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._on_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError:
            if self._head_too_large:
                self._refuse_head()
            else:
                self.send_400_response("Invalid HTTP request received.")
            return
        if in_head and self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > limits.HTTP_HEAD_BYTES_MAX:
                self._refuse_head()

    def _on_upgrade(self, early: bytes) -> None:
        if self._claimed:
            self._early = early
            self.transport.pause_reading()
        elif self._should_upgrade():
            self.handle_websocket_upgrade()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        size_bytes = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size_bytes > limits.HTTP_HEAD_BYTES_MAX:
            self._head_too_large = True
            raise ValueError("the head is too large")
        self.scope[ABORT] = self.transport.abort  # type: ignore[literal-required]
        self._claimed = bool(self.parser.should_upgrade() and self._get_upgrade() and self._claims(self.headers))
        if self._claimed:
            extensions: dict[str, Any] = {EXTENSION: self._take_over}
            self.scope["extensions"] = extensions
        super().on_headers_complete()
        if self._claimed:
            self.cycle.keep_alive = False  # what follows is not HTTP, whatever the answer

    def _should_upgrade(self) -> bool:
        return not self._claimed and super()._should_upgrade()

    def _take_over(self) -> RawConnection:
        """The connection as it is now. The exchange is over for the HTTP server: it neither answers nor waits."""
        self._raw = RawConnection(self.transport, self._early, self.connection_lost)
        self._early = b""
        self.cycle.disconnected = True
        self.transport.set_protocol(self._raw)
        return self._raw

    def shutdown(self) -> None:
        if self._raw is not None:
            self._raw.close()
        else:
            super().shutdown()

    def _refuse_head(self) -> None:
        words = b"The head of the request is too large."
        head = b"content-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(words)
        self.transport.write(STATUS_LINE[431] + head + words)
        self.transport.close()
