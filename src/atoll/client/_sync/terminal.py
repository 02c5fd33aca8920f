# Generated from src/atoll/client/_async/terminal.py by tools/unasync.py: change that file, not this one.
"""Terminals of a sandbox: a program that believes in a screen and a keyboard, over a WebSocket."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import msgspec

from atoll.client import _exchange as exchange
from atoll.client._sync.transport import Transport
from atoll.client._sockets import Socket, never_opened
from atoll.client._twins import sleep
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


class Terminal:
    """One seat at a terminal. Others may have seats at the same one; the program goes on when all have left.

    Example:
        with sb.terminals.open() as t:
            t.write("ls\\n")
            for data in t:
                print(data)
    """

    def __init__(self, transport: Transport, path: str, processes_path: str) -> None:
        self._transport = transport
        self._path = path
        self._processes = processes_path
        self._socket: Socket | None = None
        self._size: tuple[int, int] | None = None
        self._offset: int | None = None
        self.id = ""
        self.pid = 0
        self.exited: TerminalExited | None = None
        """How its program ended, as soon as that has been read."""
        self.refused: AtollError | None = None
        """What was refused last of all that was sent, as soon as that has been read; the terminal goes on."""

    def connect(self) -> None:
        """Take the seat: the newest output comes first, so that the screen looks as it did; later on, what is new.

        Example:
            t.connect()
        """
        cols, rows = self._size or (None, None)
        where = exchange.query(offset=self._offset, cols=cols, rows=rows)
        self._socket = Socket.open(self._transport.config, self._path + where)
        event = _EVENT.decode(self._socket.receive())
        if isinstance(event, TerminalFailed):
            raise exchange.problem_error(event.problem)
        if isinstance(event, TerminalAttached):
            self.id, self.pid, self._offset = event.id, event.pid, event.offset

    def __iter__(self) -> Iterator[bytes]:
        """What the terminal shows, until its program ends. A connection that breaks is made again, without a gap.

        Example:
            for data in t:
                sys.stdout.buffer.write(data)
        """
        attempt = 0
        while self.exited is None:
            try:
                if self._socket is None:
                    self.connect()
                data = self._receive()
                attempt = 0
                if data:
                    yield data
            except ConnectionFailed:
                self._socket = None
                attempt += 1
                if attempt >= limits.TERMINAL_ATTEMPTS_MAX:
                    raise
                sleep(exchange.backoff_s(attempt, random.random()))  # noqa: S311

    def _receive(self) -> bytes:
        if self._socket is None:
            raise never_opened()
        message = self._socket.receive()
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

    def wait(self) -> TerminalExited:
        """Read on until its program ends.

        Example:
            print((t.wait()).exit_code)
        """
        for _ in self:
            pass
        assert self.exited is not None
        return self.exited

    def write(self, data: str | bytes) -> None:
        """Type.

        Example:
            t.write("exit\\n")
        """
        content = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        for start in range(0, len(content), limits.SOCKET_MESSAGE_BYTES_MAX):
            self._send(content[start : start + limits.SOCKET_MESSAGE_BYTES_MAX])

    def resize(self, cols: int, rows: int) -> None:
        """Tell the program the size of the window.

        Example:
            t.resize(120, 40)
        """
        if not (1 <= cols <= limits.TERMINAL_SIZE_MAX and 1 <= rows <= limits.TERMINAL_SIZE_MAX):
            raise InvalidArgument(
                f"a window has 1 to {limits.TERMINAL_SIZE_MAX} columns and rows, not {cols} by {rows}"
            )
        self._size = (cols, rows)
        self._send(exchange.encode(TerminalResize(cols=cols, rows=rows)).decode("ascii"))

    def signal(self, signal: str | int) -> None:
        """Send a signal to its program and those in its group. One that does not exist is refused at once.

        Example:
            t.signal("HUP")
        """
        body = ProcessSignal(signal=signal)
        self._transport.fetch(
            "POST", f"{self._processes}/{exchange.segment(self.id)}/signal", exchange.encode(body)
        )

    def _send(self, message: bytes | str) -> None:
        if self._socket is None:
            raise never_opened()
        self._socket.send(message)

    def close(self) -> None:
        """Leave the seat; the program goes on.

        Example:
            t.close()
        """
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Terminals:
    """`sb.terminals`: programs on a terminal."""

    def __init__(self, transport: Transport, sandbox_path: str) -> None:
        self._transport = transport
        self._path = f"{sandbox_path}/terminals"
        self._processes = f"{sandbox_path}/processes"

    def open(
        self,
        cmd: str | list[str] | None = None,
        *,
        cols: int = 80,
        rows: int = 24,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | int | None = None,
        tag: str | None = None,
    ) -> Terminal:
        """Start a program on a new terminal and sit down at it; without one, the user's login shell.

        Example:
            t = sb.terminals.open("vim notes.txt", cols=120, rows=40)
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
        started = self._transport.call("POST", self._path, ProcessStarted, body)
        return self.attach(started.id)

    def attach(self, terminal: str | int) -> Terminal:
        """Sit down at a terminal that is there: by its id, its pid, or `tag:` and its tag.

        Example:
            t = sb.terminals.attach("tag:build")
        """
        path = f"{self._path}/{exchange.segment(str(terminal))}"
        seat = Terminal(self._transport, path, self._processes)
        seat.connect()
        return seat
