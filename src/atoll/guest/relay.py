"""Connections to servers that listen on loopback only: the caller's connection becomes one to theirs.

A server on 127.0.0.1 is out of reach for everything outside, and many development servers listen there alone.
After the one reply of this operation the connection carries no frames any more but the bytes of both sides.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from typing import TYPE_CHECKING

from atoll.guest.channel import Channel
from atoll.guest.failure import Refused
from atoll.guest.params import Params, integer
from atoll.model import limits

if TYPE_CHECKING:
    from atoll.guest.agent import Agent

_places = threading.BoundedSemaphore(limits.RELAYS_MAX)


def connect(agent: Agent, params: Params, channel: Channel) -> None:
    port = integer(params, "port", low=1, high=65535)
    if port == agent.port:
        raise Refused("permission_denied", "this port is the sandbox's own")
    if not _places.acquire(blocking=False):
        raise Refused("busy", f"{limits.RELAYS_MAX} connections to loopback at once are the most")
    try:
        with _dial(port) as server:
            channel.send_ok({})
            join(channel.socket, server)
    finally:
        _places.release()


def _dial(port: int) -> socket.socket:
    try:
        return socket.create_connection(("127.0.0.1", port), timeout=limits.FIRST_FRAME_S_MAX)
    except OSError:
        raise Refused("not_found", f"nothing listens on port {port}") from None


class _Way:
    """One direction: what was read and not yet written, and whether more will come."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source = source
        self.target = target
        self.held = b""
        self.ended = False

    def read(self) -> None:
        try:
            self.held = self.source.recv(limits.PUMP_READ_BYTES)
        except BlockingIOError:  # select may be wrong about what is there
            return
        if not self.held:
            self.ended = True
            self.target.shutdown(socket.SHUT_WR)

    def write(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self.held = self.held[self.target.send(self.held) :]


def join(left: socket.socket, right: socket.socket) -> None:
    """Pass bytes on until both ends have ended, one has broken, or neither said anything for too long."""
    ways = [_Way(left, right), _Way(right, left)]
    for side in (left, right):
        side.setblocking(False)
    try:
        while not all(way.ended for way in ways):
            ready = _wait_ready(ways)
            if not ready:
                return
            for way in ways:
                if way.held and ready.get(way.target.fileno(), 0) & ~select.POLLIN:
                    way.write()
                elif not way.held and not way.ended and ready.get(way.source.fileno(), 0) & ~select.POLLOUT:
                    way.read()
    except OSError:
        return  # whoever broke it, there is nobody to tell


def _wait_ready(ways: list[_Way]) -> dict[int, int]:
    """What happened to which descriptor. By poll: select knows the first 1024 of them only."""
    poll = select.poll()
    wanted: dict[int, int] = {}
    for way in ways:
        if way.held:
            wanted[way.target.fileno()] = wanted.get(way.target.fileno(), 0) | select.POLLOUT
        elif not way.ended:
            wanted[way.source.fileno()] = wanted.get(way.source.fileno(), 0) | select.POLLIN
    for fd, events in wanted.items():
        poll.register(fd, events)
    return dict(poll.poll(limits.INGRESS_IDLE_S_MAX * 1000))
