"""One client that follows one process: output out, input in, on one connection and in one thread.

Nothing here blocks but the poll: a client that sends much and reads nothing, and a program that writes much and reads
nothing, cannot lock each other up.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import Any, Protocol

from atoll.guest.channel import Channel, parse
from atoll.guest.failure import Disconnected, Refused, refusal
from atoll.guest.params import Params, flag, integer
from atoll.guest.processes import signal_number
from atoll.guest.pump import Pump, Stream
from atoll.guest.ring import Follower, Ring
from atoll.guest.terminal import SIZE_MAX
from atoll.model import limits
from atoll.wire import framing
from atoll.wire import guest as wire

_KINDS = {"stdout": framing.STDOUT, "stderr": framing.STDERR}
_POLL_MS = 30_000


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
    def __init__(
        self, channel: Channel, process: Followed, pump: Pump, offsets: dict[str, int], *, until_now: bool = False
    ) -> None:
        self._socket = channel.socket
        self._process = process
        self._pump = pump
        self._decoder = framing.Decoder()
        self._outgoing: list[bytes | memoryview] = []
        self._incoming: list[bytes] = []  # standard input that the program has not taken yet
        self._close_stdin = False
        self._ended = False
        self._awake = False
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._now = {name: ring.end for name, ring in process.rings.items()} if until_now else None
        self._followers = {name: Follower(offsets.get(name, 0), self._wake) for name in process.rings}

    def _wake(self) -> None:
        """From any thread; once is enough until it is heard."""
        if self._awake:
            return
        self._awake = True
        os.eventfd_write(self._wake_fd, 1)

    def run(self, first_event: Params) -> None:
        """Until the process has finished and all is sent; Disconnected when the client leaves first."""
        process = self._process
        for name, follower in self._followers.items():
            process.rings[name].follow(follower)
        process.on_finish.append(self._wake)
        self._socket.setblocking(False)
        try:
            self._outgoing.append(wire.control({"event": first_event}))
            while True:
                if not self._outgoing:
                    if self._ended:
                        return
                    self._gather()
                had_something = bool(self._outgoing)
                self._flush()
                # All went out at once, so there may be more already: look at the client, but do not wait for it.
                self._wait(0 if had_something and not self._outgoing else _POLL_MS)
        finally:
            process.on_finish.remove(self._wake)
            for name, follower in self._followers.items():
                process.rings[name].unfollow(follower)
                self._nudge(name)
            os.close(self._wake_fd)
            self._wake_fd = -1

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

    def _wait(self, timeout_ms: int) -> None:
        """Until something can be done, and do the client's part of it."""
        poll = select.poll()
        poll.register(self._wake_fd, select.POLLIN)
        wanted = (0 if self._incoming else select.POLLIN) | (select.POLLOUT if self._outgoing else 0)
        poll.register(self._socket, wanted)
        stdin_fd = self._process.stdin_fd
        if self._incoming and stdin_fd is not None:
            poll.register(stdin_fd, select.POLLOUT)
        for fd, happened in poll.poll(timeout_ms):
            if fd == self._wake_fd:
                os.eventfd_read(self._wake_fd)
                self._awake = False
            elif fd == self._socket.fileno():
                if happened & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                    raise Disconnected("the client left")
                if happened & select.POLLIN:
                    self._receive()
        self._feed_stdin()

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
                size = integer(params, "cols", low=1, high=SIZE_MAX), integer(params, "rows", low=1, high=SIZE_MAX)
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


def _final(name: str, exit_words: Params | None, now: dict[str, int] | None) -> int | None:
    """Where a stream ends for this follower; None as long as nobody knows."""
    if exit_words is not None:
        return int(exit_words[f"{name}_bytes"])
    return now[name] if now is not None else None
