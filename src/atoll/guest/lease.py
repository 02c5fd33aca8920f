"""The node's word that it looks at this sandbox's memory from outside: a connection that is open, and not silent.

While there is one the memory guard rests, because to wake up is what a look costs in here. The connection ends when
the node has seen memory move, and when its server dies, whatever of; one that is open and silent for too long is that
of a server that is stuck. So there is no way to lose the node without knowing.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from atoll.guest.channel import Channel
from atoll.guest.params import Params
from atoll.guest.pump import Pump
from atoll.model import limits

if TYPE_CHECKING:
    from atoll.guest.agent import Agent


class Lease:
    """One at a time. Its connection belongs to the pump's thread; how long it holds is asked by the guard."""

    def __init__(self, pump: Pump, on_end: Callable[[], None]) -> None:
        self._pump = pump
        self._on_end = on_end
        self._connection: socket.socket | None = None
        self._until_s = 0.0

    def take(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._pump.call(lambda: self._begin(connection))

    def left_s(self) -> float:
        """For how long nobody in here needs to look."""
        return max(0.0, self._until_s - time.monotonic())

    def _begin(self, connection: socket.socket) -> None:
        self._end()
        self._connection = connection
        self._until_s = time.monotonic() + limits.MEMORY_LEASE_S
        self._pump.watch(connection.fileno(), selectors.EVENT_READ, self._heard)

    def _heard(self) -> None:
        assert self._connection is not None
        try:
            said = self._connection.recv(64)
            if said:
                self._connection.send(said)  # whoever hears it knows that we live
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if said:
            self._until_s = time.monotonic() + limits.MEMORY_LEASE_S
        else:
            self._end()

    def _end(self) -> None:
        if self._connection is not None:
            self._pump.watch(self._connection.fileno(), 0, self._heard)
            self._connection.close()
            self._connection = None
            self._until_s = 0.0
            self._on_end()


def begin(agent: Agent, _params: Params, channel: Channel) -> None:
    """After the one reply this connection is the lease."""
    channel.send_ok({})
    agent.lease.take(channel.detach())
