"""Terminals of a sandbox: a program that believes in a screen and a keyboard, over a WebSocket."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping

import msgspec

from atoll.client import _exchange as exchange
from atoll.client._async.transport import AsyncTransport
from atoll.client._sockets import AsyncSocket, never_opened
from atoll.client._twins import async_sleep
from atoll.model import limits
from atoll.model.errors import AtollError, ConnectionFailed, InvalidArgument
from atoll.wire.public import (
    ProcessSignal,
    ProcessStarted,
    TerminalAttached,
    TerminalDropped,
    TerminalEvent,
    TerminalExited,
    TerminalFailed,
    TerminalRefused,
    TerminalResize,
    TerminalStart,
)

_EVENT = msgspec.json.Decoder(TerminalEvent)


class AsyncTerminal:
    """One seat at a terminal. Others may have seats at the same one; the program goes on when all have left.

    Example:
        async with await sb.terminals.open() as t:
            await t.write("ls\\n")
            async for data in t:
                print(data)
    """

    def __init__(self, transport: AsyncTransport, path: str, processes_path: str) -> None:
        self._transport = transport
        self._path = path
        self._processes = processes_path
        self._socket: AsyncSocket | None = None
        self._size: tuple[int, int] | None = None
        self._offset: int | None = None
        self.id = ""
        self.pid = 0
        self.exited: TerminalExited | None = None
        """How its program ended, as soon as that has been read."""
        self.refused: AtollError | None = None
        """What was refused last of all that was sent, as soon as that has been read; the terminal goes on."""

    async def connect(self) -> None:
        """Take the seat: the newest output comes first, so that the screen looks as it did; later on, what is new.

        Example:
            await t.connect()
        """
        cols, rows = self._size or (None, None)
        where = exchange.query(offset=self._offset, cols=cols, rows=rows)
        self._socket = await AsyncSocket.open(self._transport.config, self._path + where)
        event = _EVENT.decode(await self._socket.receive())
        if isinstance(event, TerminalFailed):
            raise exchange.problem_error(event.problem)
        if isinstance(event, TerminalAttached):
            self.id, self.pid, self._offset = event.id, event.pid, event.offset

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """What the terminal shows, until its program ends. A connection that breaks is made again, without a gap.

        Example:
            async for data in t:
                sys.stdout.buffer.write(data)
        """
        attempt = 0
        while self.exited is None:
            try:
                if self._socket is None:
                    await self.connect()
                data = await self._receive()
                attempt = 0
                if data:
                    yield data
            except ConnectionFailed:
                self._socket = None
                attempt += 1
                if attempt >= limits.TERMINAL_ATTEMPTS_MAX:
                    raise
                await async_sleep(exchange.backoff_s(attempt, random.random()))  # noqa: S311

    async def _receive(self) -> bytes:
        if self._socket is None:
            raise never_opened()
        message = await self._socket.receive()
        if isinstance(message, bytes):
            self._offset = (self._offset or 0) + len(message)
            return message
        event = _EVENT.decode(message)
        if isinstance(event, TerminalFailed):
            raise exchange.problem_error(event.problem)
        if isinstance(event, TerminalExited):
            self.exited = event
        elif isinstance(event, TerminalRefused):
            self.refused = exchange.problem_error(event.problem)
        elif isinstance(event, TerminalDropped):
            self._offset = event.offset + event.length
        return b""

    async def wait(self) -> TerminalExited:
        """Read on until its program ends.

        Example:
            print((await t.wait()).exit_code)
        """
        async for _ in self:
            pass
        assert self.exited is not None
        return self.exited

    async def write(self, data: str | bytes) -> None:
        """Type.

        Example:
            await t.write("exit\\n")
        """
        content = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        for start in range(0, len(content), limits.SOCKET_MESSAGE_BYTES_MAX):
            await self._send(content[start : start + limits.SOCKET_MESSAGE_BYTES_MAX])

    async def resize(self, cols: int, rows: int) -> None:
        """Tell the program the size of the window.

        Example:
            await t.resize(120, 40)
        """
        if not (1 <= cols <= limits.TERMINAL_SIZE_MAX and 1 <= rows <= limits.TERMINAL_SIZE_MAX):
            raise InvalidArgument(
                f"a window has 1 to {limits.TERMINAL_SIZE_MAX} columns and rows, not {cols} by {rows}"
            )
        self._size = (cols, rows)
        await self._send(exchange.encode(TerminalResize(cols=cols, rows=rows)).decode("ascii"))

    async def signal(self, signal: str | int) -> None:
        """Send a signal to its program and those in its group. One that does not exist is refused at once.

        Example:
            await t.signal("HUP")
        """
        body = ProcessSignal(signal=signal)
        await self._transport.fetch(
            "POST", f"{self._processes}/{exchange.segment(self.id)}/signal", exchange.encode(body)
        )

    async def _send(self, message: bytes | str) -> None:
        if self._socket is None:
            raise never_opened()
        await self._socket.send(message)

    async def aclose(self) -> None:
        """Leave the seat; the program goes on.

        Example:
            await t.aclose()
        """
        if self._socket is not None:
            await self._socket.aclose()
            self._socket = None

    async def __aenter__(self) -> AsyncTerminal:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class AsyncTerminals:
    """`sb.terminals`: programs on a terminal."""

    def __init__(self, transport: AsyncTransport, sandbox_path: str) -> None:
        self._transport = transport
        self._path = f"{sandbox_path}/terminals"
        self._processes = f"{sandbox_path}/processes"

    async def open(
        self,
        cmd: str | list[str] | None = None,
        *,
        cols: int = 80,
        rows: int = 24,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | int | None = None,
        tag: str | None = None,
    ) -> AsyncTerminal:
        """Start a program on a new terminal and sit down at it; without one, the user's login shell.

        Example:
            t = await sb.terminals.open("vim notes.txt", cols=120, rows=40)
        """
        body = TerminalStart(
            cmd=cmd if isinstance(cmd, str) else None,
            argv=cmd if isinstance(cmd, list) else None,
            cols=cols,
            rows=rows,
            env=dict(env or {}),
            cwd=cwd,
            user=user,
            tag=tag,
        )
        started = await self._transport.call("POST", self._path, ProcessStarted, body)
        return await self.attach(started.id)

    async def attach(self, terminal: str | int) -> AsyncTerminal:
        """Sit down at a terminal that is there: by its id, its pid, or `tag:` and its tag.

        Example:
            t = await sb.terminals.attach("tag:build")
        """
        path = f"{self._path}/{exchange.segment(str(terminal))}"
        seat = AsyncTerminal(self._transport, path, self._processes)
        await seat.connect()
        return seat
