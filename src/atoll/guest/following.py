"""One client that follows one process: output out, input in, on one connection, all in the pump's thread.

Nothing here blocks: a client that sends much and reads nothing, and a program that writes much and reads nothing,
cannot lock each other up. And nothing changes threads: a wake-up between two threads costs more here than all that is
done with the bytes.
"""

from __future__ import annotations

import os
import select
import selectors
from collections.abc import Callable
from typing import Any, Protocol

from atoll.guest.channel import Channel, parse
from atoll.guest.failure import Disconnected, Refused, refusal
from atoll.guest.params import Params, flag, integer
from atoll.guest.processes import signal_number
from atoll.guest.pump import Pump, Stream, Timer
from atoll.guest.ring import Follower, Ring
from atoll.model import limits
from atoll.wire import framing
from atoll.wire import guest as wire

_LOOK_S = 1.0
_KINDS = {"stdout": framing.STDOUT, "stderr": framing.STDERR}


class Followed(Protocol):
    """A process, or one command of a shell session."""

    rings: dict[str, Ring]
    streams: dict[str, Stream]
    stdin_fd: int | None
    exit: Params | None
    on_finish: list[Callable[[], None]]

    def write_stdin(self, data: bytes | memoryview) -> int: ...
    def close_stdin(self, *, by_caller: bool = False) -> None: ...
    def resize(self, cols: int, rows: int) -> None: ...
    def signal(self, number: int, *, group: bool) -> None: ...


class Following:
    """Made by whoever read the request; from `begin` on it belongs to the pump."""

    alive = 0  # how many there are; changed in the pump's thread

    def __init__(
        self,
        channel: Channel,
        process: Followed,
        pump: Pump,
        offsets: dict[str, int],
        *,
        until_now: bool = False,
        on_leave: Callable[[], None] | None = None,
    ) -> None:
        self.check_room()
        self._socket = channel.detach()
        self._socket.setblocking(False)
        self._process = process
        self._pump = pump
        self._on_leave = on_leave  # called when the client leaves before the end
        self._decoder = framing.Decoder()
        self._outgoing: list[bytes | memoryview] = []
        self._incoming: list[bytes] = []  # standard input that the program has not taken yet
        self._stdin_fd: int | None = None  # while the program does not read: a copy, to hear when it does
        self._close_stdin = False
        self._ended = False
        self._left = False
        self._awake = False
        self._next_look: Timer | None = None  # one at a time, however often there is something to send meanwhile
        self._now = {name: ring.end for name, ring in process.rings.items()} if until_now else None
        self._followers = {name: Follower(offsets.get(name, 0), self._wake) for name in process.rings}

    @classmethod
    def check_room(cls) -> None:
        if cls.alive >= limits.CONNECTIONS_MAX:
            raise Refused("busy", f"{limits.CONNECTIONS_MAX} followers at once are the most")

    def begin(self, first_event: Params) -> None:
        """Follow until the process has finished and all is sent, or the client leaves. Only in the pump's thread."""
        Following.alive += 1
        for name, follower in self._followers.items():
            self._process.rings[name].follow(follower)
        self._process.on_finish.append(self._wake)
        self._outgoing.append(wire.control({"event": first_event}))
        self._wake()  # not at once: if it has ended already, one message says all

    def _wake(self) -> None:
        """There is something new; once is enough until it is looked at."""
        if not self._awake:
            self._awake = True
            self._pump.call(self._step)

    def _step(self) -> None:
        """Send what there is, as far as the client takes it."""
        self._awake = False
        if self._left:
            return
        try:
            self._send()
        except Disconnected:
            self._leave(early=True)
        except Exception:  # the pump serves all the others too
            self._leave(early=True)
            raise
        else:
            if self._ended and not self._outgoing:
                self._leave(early=False)
            else:
                self._watch()

    def _send(self) -> None:
        while True:
            if len(self._outgoing) <= 1 and not self._ended:
                self._gather()
            if not self._outgoing:
                return
            self._flush()
            if self._outgoing:
                return  # the client takes no more for now

    def _watch(self) -> None:
        events = (0 if self._incoming else selectors.EVENT_READ) | (selectors.EVENT_WRITE if self._outgoing else 0)
        self._pump.watch(self._socket.fileno(), events, self._on_socket)
        if not events and self._next_look is None:
            self._next_look = self._pump.call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        """Nothing is read from the client while the program takes no input, and yet it may have left."""
        self._next_look = None
        if self._left or not self._incoming or self._outgoing:
            return
        poll = select.poll()
        poll.register(self._socket, select.POLLRDHUP)
        if poll.poll(0):
            self._leave(early=True)
        else:
            self._next_look = self._pump.call_later(_LOOK_S, self._look)

    def _on_socket(self) -> None:
        try:
            if not self._incoming:
                self._receive()
                self._feed_stdin()
        except Disconnected:
            self._leave(early=True)
        self._step()

    def _leave(self, *, early: bool) -> None:
        if self._left:
            return
        self._left = True
        Following.alive -= 1
        self._process.on_finish.remove(self._wake)
        for name, follower in self._followers.items():
            self._process.rings[name].unfollow(follower)
            self._nudge(name)
        self._forget_stdin()
        self._pump.watch(self._socket.fileno(), 0, self._on_socket)
        self._socket.close()
        if early and self._on_leave is not None:
            self._on_leave()

    def _nudge(self, name: str) -> None:
        stream = self._process.streams.get(name)
        if stream is not None:
            self._pump.nudge(stream)

    def _gather(self) -> None:
        """Take what is new from the rings; the end, when nothing can come any more."""
        exit_words = self._process.exit  # looked at first: after it is set, the final offsets do not move
        done = exit_words is not None or self._now is not None
        for name, follower in self._followers.items():
            ring = self._process.rings[name]
            final = _final(name, exit_words, self._now)
            count = limits.PUMP_READ_BYTES if final is None else min(limits.PUMP_READ_BYTES, final - follower.position)
            if count <= 0:
                continue
            begin, data = ring.read(follower.position, count)
            if begin > follower.position:
                self._event("dropped", stream=name, bytes=begin - follower.position, offset=begin)
            if data:
                self._outgoing += [framing.header(_KINDS[name], len(data)), data]
            ring.advance(follower, begin + len(data))
            self._nudge(name)
            done = done and final is not None and follower.position >= final
        if done:
            self._outgoing.append(wire.control({"end": exit_words or {"running": True}}))
            self._ended = True

    def _event(self, kind: str, **value: Any) -> None:
        self._outgoing.append(wire.control({"event": {"type": kind, **value}}))

    def _flush(self) -> None:
        try:
            while self._outgoing:
                sent = self._socket.sendmsg(self._outgoing)
                while self._outgoing and sent >= len(self._outgoing[0]):
                    sent -= len(self._outgoing.pop(0))
                if sent:
                    self._outgoing[0] = memoryview(self._outgoing[0])[sent:]
        except BlockingIOError:
            return
        except OSError as error:
            raise Disconnected(str(error)) from error

    def _receive(self) -> None:
        try:
            data = self._socket.recv(limits.PUMP_READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise Disconnected(str(error)) from error
        if not data:
            raise Disconnected("the client left")
        try:
            frames = self._decoder.feed(data)
        except framing.FrameError as error:
            raise Disconnected(str(error)) from error
        for frame in frames:
            try:
                self._take(frame)
            except (Refused, OSError) as error:
                reason = refusal(error)
                self._event("refused", code=reason.code, message=reason.message)

    def _take(self, frame: framing.Frame) -> None:
        if frame.kind == framing.INPUT:
            if self._process.stdin_fd is None:
                raise Refused("wrong_state", "standard input of this process is not open")
            self._incoming.append(frame.payload)
            return
        params = parse(frame)
        match params.get("do"):
            case "close_stdin":
                self._close_stdin = True
            case "resize":
                size = (
                    integer(params, "cols", low=1, high=limits.TERMINAL_SIZE_MAX),
                    integer(params, "rows", low=1, high=limits.TERMINAL_SIZE_MAX),
                )
                self._process.resize(*size)
            case "signal":
                self._process.signal(signal_number(params.get("signal")), group=flag(params, "group"))
            case _:
                raise Refused("invalid_argument", "unknown request on a process")

    def _feed_stdin(self) -> None:
        try:
            while self._incoming:
                written = self._process.write_stdin(self._incoming[0])
                if not written and self._incoming[0]:
                    self._await_stdin()
                    return
                if written == len(self._incoming[0]):
                    self._incoming.pop(0)
                else:
                    self._incoming[0] = self._incoming[0][written:]
        except Refused as error:
            self._incoming.clear()
            if self._process.exit is None:
                self._event("refused", code=error.code, message=error.message)
        if self._close_stdin:
            self._close_stdin = False
            self._process.close_stdin(by_caller=True)

    def _await_stdin(self) -> None:
        """Of a copy, because several clients may wait for one program."""
        fd = self._process.stdin_fd
        if self._stdin_fd is None and fd is not None:
            self._stdin_fd = os.dup(fd)
            self._pump.watch(self._stdin_fd, selectors.EVENT_WRITE, self._on_stdin)

    def _on_stdin(self) -> None:
        self._forget_stdin()
        self._feed_stdin()
        self._step()

    def _forget_stdin(self) -> None:
        if self._stdin_fd is not None:
            self._pump.watch(self._stdin_fd, 0, self._on_stdin)
            os.close(self._stdin_fd)
            self._stdin_fd = None


def _final(name: str, exit_words: Params | None, now: dict[str, int] | None) -> int | None:
    """Where a stream ends for this follower; None as long as nobody knows."""
    if exit_words is not None:
        return int(exit_words[f"{name}_bytes"])
    return now[name] if now is not None else None
