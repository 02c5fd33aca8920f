"""One client that follows one process, where all that it says and hears is at hand."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from atoll.guest.channel import Channel
from atoll.guest.following import Following
from atoll.guest.params import Params
from atoll.guest.pump import Pump, Stream, Timer
from atoll.guest.ring import Budget, Ring
from atoll.wire import framing
from tests.waiting import wait_until


class CountingPump(Pump):
    timers = 0

    def call_later(self, delay_s: float, function: Callable[[], None]) -> Timer:
        self.timers += 1
        return super().call_later(delay_s, function)


class Deaf:
    """A program that prints and takes no input."""

    def __init__(self) -> None:
        self.rings = {"stdout": Ring(Budget())}
        self.streams: dict[str, Stream] = {}
        self.unread_fd, self._input_fd = os.pipe()  # full, for whoever waits until it is not
        os.set_blocking(self._input_fd, False)
        self.stdin_fd: int | None = self._input_fd
        while self._write(bytes(4096)):
            pass
        self.exit: Params | None = None
        self.on_finish: list[Callable[[], None]] = []
        self.offered = threading.Event()

    def _write(self, data: bytes | memoryview) -> int:
        try:
            return os.write(self._input_fd, data)
        except BlockingIOError:
            return 0

    def write_stdin(self, data: bytes | memoryview) -> int:
        count = self._write(data)
        self.offered.set()
        return count

    def close_stdin(self, *, by_caller: bool = False) -> None:
        for fd in (self.unread_fd, self._input_fd):
            os.close(fd)

    def resize(self, cols: int, rows: int) -> None:
        raise NotImplementedError

    def signal(self, number: int, *, group: bool) -> None:
        raise NotImplementedError


def read_frames(client: socket.socket, count: int) -> list[framing.Frame]:
    decoder, frames = framing.Decoder(), list[framing.Frame]()
    while len(frames) < count:
        frames += decoder.feed(client.recv(65536))
    return frames


def test_one_look_at_a_time_after_a_client_whose_input_nobody_takes() -> None:
    pump, process = CountingPump(), Deaf()
    pump.start()
    client, ours = socket.socketpair()
    first: dict[str, Any] = {"type": "started"}
    following = Following(Channel(ours), process, pump, {})
    pump.call(lambda: following.begin(first))
    with client:
        client.settimeout(10)
        read_frames(client, 1)
        client.sendall(framing.header(framing.INPUT, 1) + b"x")
        assert process.offered.wait(10)
        for _ in range(20):
            pump.call(lambda: process.rings["stdout"].append(b"y"))
            (frame,) = read_frames(client, 1)
            assert frame.payload == b"y"
        # A look each second at the most may have come in between; each line of output added one for ever.
        assert pump.timers < 10
    os.read(process.unread_fd, 1 << 20)  # now it takes input, and its client's end is heard of
    wait_until(lambda: not process.on_finish, 10)
    process.close_stdin()
