"""A connection as bytes in and bytes out: plain, or TLS that ends here; the same three words for both.

One task may receive while another sends. Nothing is read ahead, so a peer that does not read holds up the other one and
costs one chunk of memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Protocol

import anyio

from atoll.model import limits

_WRITE_BYTES = 64 * limits.KIB  # of plain text at a time: the encrypted copy is in memory too
_RESET = struct.pack("ii", 1, 0)


class Channel(Protocol):
    async def receive(self, size_bytes: int = limits.EGRESS_LOOK_BYTES) -> bytes:
        """Some bytes, at most so many; none at the end."""
        ...

    async def send(self, data: bytes) -> None: ...

    async def send_end(self) -> None:
        """Say that no more bytes will come."""
        ...

    def close(self) -> None: ...


class Plain:
    """A socket. `first` are bytes that were read already, to find out what this is.

    It is watched by the loop from its first wait to its end: to begin and to stop costs system calls, and a connection
    waits many times. What becomes readable while nobody waits ends the watch until somebody does.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.first = b""
        self._loop = asyncio.get_running_loop()
        self._fd = sock.fileno()
        self._watched = False
        self._call: Callable[[], None] | None = None

    def when_readable(self, call: Callable[[], None] | None) -> None:
        """What to call when there is something to read, as long as there is; None: nothing."""
        self._call = call
        if call is not None and not self._watched:
            self._watched = True
            self._loop.add_reader(self._fd, self._readable)

    def _readable(self) -> None:
        if self._call is not None:
            self._call()
        else:
            self._unwatch()

    def _unwatch(self) -> None:
        if self._watched:
            self._watched = False
            self._loop.remove_reader(self._fd)

    async def wait_readable(self, timeout_s: float | None = None) -> bool:
        """Wait for something to read, or for the end; False if nothing came in time."""
        future: asyncio.Future[bool] = self._loop.create_future()
        timer = self._loop.call_later(timeout_s, _done, future, False) if timeout_s is not None else None
        self.when_readable(functools.partial(_done, future, True))
        try:
            return await future
        finally:
            self.when_readable(None)
            if timer is not None:
                timer.cancel()

    async def read_first(self, timeout_s: float | None = None) -> bool:
        """Read some more of the beginning, without using it up; False at the end, or if nothing came in time."""
        while await self.wait_readable(timeout_s):
            with contextlib.suppress(BlockingIOError, InterruptedError):
                data = self.socket.recv(limits.HELLO_BYTES_MAX)
                self.first += data
                return bool(data)
        return False

    async def receive(self, size_bytes: int = limits.EGRESS_LOOK_BYTES) -> bytes:
        if self.first:
            data, self.first = self.first, b""
            return data
        while True:
            await self.wait_readable()
            with contextlib.suppress(BlockingIOError, InterruptedError):
                return self.socket.recv(size_bytes)

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.socket, data)

    async def send_end(self) -> None:
        self.end()

    def end(self) -> None:
        """Say that no more bytes will come."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close so that the peer knows at once that nobody wanted it."""
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.close()

    def close(self) -> None:
        """The loop forgets it first: the number of a closed socket is the next one's."""
        self._unwatch()
        self.socket.close()


def _done(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)


class Tls:
    """TLS over a plain channel, ended here."""

    def __init__(self, plain: Plain, context: ssl.SSLContext, *, server_side: bool, name: str | None) -> None:
        self._plain = plain
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side, server_hostname=name)
        self._flushing = anyio.Lock()

    @property
    def protocol(self) -> str:
        return self._tls.selected_alpn_protocol() or ""

    async def handshake(self) -> None:
        with anyio.fail_after(limits.EGRESS_HANDSHAKE_S_MAX):
            while True:
                try:
                    self._tls.do_handshake()
                except ssl.SSLWantReadError:
                    await self._flush()
                    await self._fill()
                    continue
                except ssl.SSLError:
                    with contextlib.suppress(OSError):
                        await self._flush()  # the alert that says why
                    raise
                await self._flush()
                return

    async def receive(self, size_bytes: int = limits.EGRESS_LOOK_BYTES) -> bytes:
        while True:
            try:
                return self._tls.read(size_bytes)
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill(size_bytes)
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    async def send(self, data: bytes) -> None:
        for start in range(0, len(data), _WRITE_BYTES):
            self._tls.write(data[start : start + _WRITE_BYTES])
            await self._flush()

    async def send_end(self) -> None:
        with contextlib.suppress(OSError):
            with contextlib.suppress(ssl.SSLWantReadError):
                self._tls.unwrap()
            await self._flush()
            await self._plain.send_end()

    def close(self) -> None:
        self._plain.close()

    async def _fill(self, size_bytes: int = limits.EGRESS_LOOK_BYTES) -> None:
        data = await self._plain.receive(size_bytes)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def _flush(self) -> None:
        async with self._flushing:
            while self._outgoing.pending:
                await self._plain.send(self._outgoing.read())
