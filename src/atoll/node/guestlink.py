"""The node's end of the connection to a guest, whose every word is hostile: bounded in time, bytes and count.

    link = GuestLink(connect, token)
    await link.call("file.stat", path="/etc/hosts")
    async with link.stream("file.read", {"path": "/var/log/x"}) as stream:
        async for message in stream:            # wire.Event, wire.Data, and at last wire.End
            ...

One connection per operation, made by `connect` in the right namespace; with `begin`, the next one is under way while
nobody needs it. A raw socket and not a stream reader, because half of the work of this server is to move bytes
through here.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio

from atoll.model import errors, limits
from atoll.node.spareline import Begin, SpareLine
from atoll.wire import framing
from atoll.wire import guest as wire

Connect = Callable[[], Awaitable[socket.socket]]
_RECEIVE_BYTES = 512 * limits.KIB


class GuestStream:
    """One operation under way. One task may receive while another sends."""

    def __init__(self, connection: socket.socket, idle_s: float | None, bytes_max: int | None) -> None:
        self._socket = connection
        self._loop = asyncio.get_running_loop()
        self._decoder = framing.Decoder()
        self._ready: deque[wire.Message] = deque()
        self._idle_s = idle_s
        self._bytes_left = bytes_max
        self._sending = anyio.Lock()
        self.ended = False

    async def send(self, payload: bytes | memoryview, kind: int = framing.INPUT) -> None:
        """Bytes towards the guest, cut into frames; waits while the guest does not take them."""
        view = memoryview(payload)
        async with self._sending:
            for start in range(0, len(view), limits.FRAME_BYTES_MAX):
                part = view[start : start + limits.FRAME_BYTES_MAX]
                await self._send_frame(framing.header(kind, len(part)), part)

    async def _send_frame(self, head: bytes, part: memoryview) -> None:
        """Header and payload in one system call and without a copy; the loop is asked only when the way is full."""
        try:
            sent = self._socket.sendmsg((head, part))
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise await self._last_words(error) from error
        if sent < len(head):
            await self._send_all(head[sent:])
            sent = len(head)
        if sent < len(head) + len(part):
            await self._send_all(part[sent - len(head) :])

    async def send_control(self, value: dict[str, Any]) -> None:
        try:
            frame = wire.control(value)
        except framing.FrameError as error:
            raise errors.TooLarge(str(error)) from error
        async with self._sending:
            await self._send_all(frame)

    async def commit(self) -> None:
        """An upload is complete: without this the guest forgets it."""
        await self.send_control({"do": "commit"})

    async def _send_all(self, data: bytes | memoryview) -> None:
        try:
            with anyio.fail_after(min(self._idle_s or limits.TRANSFER_STALL_S_MAX, limits.TRANSFER_STALL_S_MAX)):
                await self._loop.sock_sendall(self._socket, data)
        except TimeoutError:
            raise errors.GuestFailed("the sandbox takes no more data", code="guest_stalled") from None
        except OSError as error:
            # The guest closes after an error of its own; what it said is worth more than "broken pipe".
            raise await self._last_words(error) from error

    async def _last_words(self, cause: OSError) -> errors.AtollError:
        try:
            with anyio.fail_after(1.0):
                while True:
                    await self.receive()
        except errors.AtollError as said:
            return said
        except (TimeoutError, EOFError):
            return errors.GuestFailed("the connection to the sandbox broke", code="guest_lost", detail=str(cause))

    async def receive(self, timeout_s: float | None = None) -> wire.Message:
        """The next message; an error of the guest is raised as ours, and EOFError after the last message."""
        if self.ended:
            raise EOFError
        if not self._ready:
            wait_s = self._idle_s if timeout_s is None else timeout_s
            try:
                with anyio.fail_after(wait_s):
                    await self._fill()
            except TimeoutError:
                raise errors.GuestFailed("the sandbox does not answer", code="guest_timeout") from None
        message = self._ready.popleft()
        if isinstance(message, wire.Failure):
            self.ended = True
            raise errors.from_guest(message.code, message.message)
        self.ended = isinstance(message, wire.Ok | wire.End)
        return message

    async def _fill(self) -> None:
        while not self._ready:
            try:
                data = await self._loop.sock_recv(self._socket, _RECEIVE_BYTES)
            except OSError as error:
                raise errors.GuestFailed(
                    "the connection to the sandbox broke", code="guest_lost", detail=str(error)
                ) from error
            if not data:
                raise errors.GuestFailed("the sandbox ended the connection", code="guest_lost")
            try:
                self._ready.extend(self._counted(frame) for frame in self._decoder.feed(data))
            except (framing.FrameError, wire.MessageError) as error:
                raise errors.GuestFailed(
                    "the sandbox does not keep the protocol", code="guest_garbage", detail=str(error)
                ) from error

    def _counted(self, frame: framing.Frame) -> wire.Message:
        if self._bytes_left is not None:
            self._bytes_left -= len(frame.payload)
            if self._bytes_left < 0:
                raise errors.TooLarge("the sandbox answers with more than was asked for", code="too_large")
        return wire.parse_reply(frame)

    def heard(self) -> bool:
        """Whether there is something to receive, be it the end, without waiting for it."""
        if self._ready:
            return True
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def __aiter__(self) -> AsyncIterator[wire.Message]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[wire.Message]:
        while not self.ended:
            yield await self.receive()


class GuestLink:
    """All that is known of one guest: how to reach it, and its token."""

    def __init__(self, connect: Connect, token: str, begin: Begin | None = None) -> None:
        self._connect = connect
        self._spare = SpareLine(begin)
        self._open_connections: set[socket.socket] = set()
        self.token = token

    def hang_up(self) -> None:
        """End every operation under way: its sandbox is gone, and a dead peer sends no farewell."""
        self.rest()
        self._spare = SpareLine(None)
        for connection in self._open_connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def rest(self) -> None:
        """No connection but those of operations under way."""
        self._spare.close()

    def _renew(self) -> None:
        self._spare.renew()

    @asynccontextmanager
    async def stream(
        self,
        op: str,
        params: dict[str, Any] | None = None,
        *,
        idle_s: float | None = None,
        bytes_max: int | None = None,
    ) -> AsyncIterator[GuestStream]:
        """Start an operation; its connection ends with the block, whatever happened in it.

        Without `idle_s` it may be silent for as long as an operation of its kind may.
        """
        try:
            frame = wire.request(op, self.token, params or {})
        except framing.FrameError as error:
            raise errors.TooLarge(str(error), hint="send large content as a file") from error
        except (TypeError, ValueError) as error:
            raise errors.InvalidArgument(f"not a parameter for a guest: {error}") from error
        connection = await self._open()
        self._open_connections.add(connection)
        try:
            stream = GuestStream(connection, _silence_s(op) if idle_s is None else idle_s, bytes_max)
            await stream._send_all(frame)
            yield stream
            if stream.ended:  # the answer goes out first
                asyncio.get_running_loop().call_soon(self._renew)
        finally:
            self._open_connections.discard(connection)
            connection.close()

    async def _open(self) -> socket.socket:
        return await self._spare.take() or await self._dial()

    async def _dial(self) -> socket.socket:
        try:
            with anyio.fail_after(limits.GUEST_CONNECT_S_MAX):
                connection = await self._connect()
        except TimeoutError:
            raise errors.GuestFailed("the sandbox takes no connection", code="guest_unreachable") from None
        except OSError as error:
            raise errors.GuestFailed(
                "the sandbox cannot be reached", code="guest_unreachable", detail=str(error)
            ) from error
        connection.setblocking(False)
        if connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    async def become(self, op: str, params: dict[str, Any]) -> socket.socket:
        """An operation after whose one reply its connection carries plain bytes: that connection, for the caller."""
        connection = await self._open()
        try:
            with _within(limits.GUEST_CONNECT_S_MAX):
                await asyncio.get_running_loop().sock_sendall(connection, wire.request(op, self.token, params))
                message = await _read_reply(connection)
        except OSError as error:
            connection.close()
            raise errors.GuestFailed(
                "the connection to the sandbox broke", code="guest_lost", detail=str(error)
            ) from error
        except BaseException:
            connection.close()
            raise
        if isinstance(message, wire.Ok):
            asyncio.get_running_loop().call_soon(self._renew)
            return connection
        connection.close()
        if isinstance(message, wire.Failure):
            raise errors.from_guest(message.code, message.message)
        raise errors.GuestFailed("the sandbox answers something else", code="guest_garbage")

    async def call(
        self, op: str, params: dict[str, Any] | None = None, *, timeout_s: float = limits.GUEST_REPLY_S_MAX
    ) -> dict[str, Any]:
        """An operation with one reply, all of it within the time."""
        async with self.calling(op, params, timeout_s=timeout_s) as answer:
            return await answer()

    @asynccontextmanager
    async def calling(
        self,
        op: str,
        params: dict[str, Any] | None = None,
        *,
        timeout_s: float = limits.GUEST_REPLY_S_MAX,
    ) -> AsyncIterator[Callable[[], Awaitable[dict[str, Any]]]]:
        """The same with something to do while the guest works; what is given waits for the reply."""
        with _within(timeout_s):
            async with self.stream(op, params, idle_s=timeout_s, bytes_max=limits.FRAME_BYTES_MAX) as stream:

                async def answer() -> dict[str, Any]:
                    message = await stream.receive()
                    if not isinstance(message, wire.Ok):
                        raise errors.GuestFailed("the sandbox answers something else", code="guest_garbage")
                    return message.value

                yield answer

    async def upload(
        self, op: str, params: dict[str, Any], chunks: AsyncIterator[bytes], *, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """An operation that takes bytes and then says what became of them. Memory stays flat: one chunk at a time."""
        with _within(timeout_s):
            async with self.stream(op, params, idle_s=limits.TRANSFER_STALL_S_MAX, bytes_max=limits.MIB) as stream:
                async for chunk in chunks:
                    await stream.send(chunk)
                await stream.commit()
                message = await stream.receive()
        if not isinstance(message, wire.Ok):
            raise errors.GuestFailed("the sandbox answers something else", code="guest_garbage")
        return message.value


def _silence_s(op: str) -> float | None:
    """None where a guest that lives may rightly say nothing for ever: one that is dead is hung up on."""
    return None if op in wire.SILENT_OPS else limits.GUEST_IDLE_S_MAX


async def _read_reply(connection: socket.socket) -> wire.Message:
    """One frame, and not a byte of what comes behind it."""
    length, kind = framing.HEADER.unpack(await _read_exactly(connection, framing.HEADER.size))
    if length > limits.FRAME_BYTES_MAX:
        raise errors.GuestFailed("the sandbox does not keep the protocol", code="guest_garbage")
    try:
        return wire.parse_reply(framing.Frame(kind, await _read_exactly(connection, length)))
    except wire.MessageError as error:
        raise errors.GuestFailed(
            "the sandbox does not keep the protocol", code="guest_garbage", detail=str(error)
        ) from error


async def _read_exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = await asyncio.get_running_loop().sock_recv(connection, count - len(data))
        if not part:
            raise errors.GuestFailed("the sandbox ended the connection", code="guest_lost")
        data += part
    return data


@contextmanager
def _within(timeout_s: float | None) -> Iterator[None]:
    """A time limit whose error says that the guest was too slow."""
    try:
        with anyio.fail_after(timeout_s):
            yield
    except TimeoutError:
        raise errors.GuestFailed("the sandbox does not answer in time", code="guest_timeout") from None
