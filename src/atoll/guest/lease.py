"""The node's line to this sandbox: on it the node says whether it looks at the memory from outside, and hears how many
processes there are.

While it does look the memory guard rests, because to wake up is what a look costs in here. The line ends when the
node's server dies, whatever of; one that is open and silent for too long is that of a server that is stuck. So there is
no way to lose the node without knowing.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from atoll.guest import tree
from atoll.guest.channel import Channel
from atoll.guest.params import Params
from atoll.guest.pump import Pump
from atoll.model import limits
from atoll.wire import guest as wire

if TYPE_CHECKING:
    from atoll.guest.agent import Agent


class Lease:
    """One line at a time. It belongs to the pump's thread; for how long nobody needs to look is asked by the guard."""

    def __init__(self, pump: Pump, on_end: Callable[[], None]) -> None:
        self._pump = pump
        self._on_end = on_end
        self._line: socket.socket | None = None
        self._until_s = 0.0

    def take(self, line: socket.socket) -> None:
        line.setblocking(False)
        self._pump.call(lambda: self._begin(line))

    def left_s(self) -> float:
        """For how long nobody in here needs to look."""
        return max(0.0, self._until_s - time.monotonic())

    def _begin(self, line: socket.socket) -> None:
        self._hang_up()
        self._line = line
        self._pump.watch(line.fileno(), selectors.EVENT_READ, self._heard)

    def _heard(self) -> None:
        assert self._line is not None
        try:
            said = self._line.recv(64)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:
            self._hang_up()
            return
        if said.endswith(wire.LINE_REST):
            self._until_s = time.monotonic() + limits.MEMORY_LEASE_S
        else:
            self._end()
        with suppress(OSError):  # who hears nothing, or has left, is heard of
            self._line.send(b"%d\n" % len(tree.pids()))  # it says that we live, too

    def _hang_up(self) -> None:
        if self._line is not None:
            self._pump.watch(self._line.fileno(), 0, self._heard)
            self._line.close()
            self._line = None
            self._end()

    def _end(self) -> None:
        if self._until_s:
            self._until_s = 0.0
            self._on_end()


def begin(agent: Agent, _params: Params, channel: Channel) -> None:
    """After the one reply this connection is the line."""
    channel.send_ok({})
    agent.lease.take(channel.detach())
