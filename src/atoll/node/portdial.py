"""Connections to a sandbox's own ports, for whoever was let in: made in its namespace, and ended with it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Collection
from weakref import WeakSet

from atoll.model import limits
from atoll.model.errors import Forbidden, GuestFailed, NotFound
from atoll.node.guestlink import GuestLink
from atoll.node.network import plan
from atoll.node.network.netns import Network


class PortDial:
    """The ports of one sandbox. `reserved` are ours: no caller gets through to them, whatever control says."""

    def __init__(self, network: Network, guest: GuestLink, reserved: Collection[int]) -> None:
        self._network = network
        self._guest = guest
        self._reserved = frozenset(reserved)
        self._open: WeakSet[socket.socket] = WeakSet()

    async def dial(self, port: int) -> socket.socket:
        """A connection to a port, through the guest if it listens on loopback only; the caller closes it."""
        if port in self._reserved:
            raise Forbidden(f"port {port} belongs to the sandbox itself", code="port_reserved")
        sock = await self._direct(port) or await self._through_guest(port)
        self._open.add(sock)
        return sock

    async def _direct(self, port: int) -> socket.socket | None:
        sock = self._network.socket_open()
        try:
            async with asyncio.timeout(limits.GUEST_CONNECT_S_MAX):
                await asyncio.get_running_loop().sock_connect(sock, (plan.INNER_ADDRESS, port))
        except ConnectionRefusedError:
            sock.close()
            return None
        except (OSError, TimeoutError) as error:
            sock.close()
            raise GuestFailed("the sandbox does not answer", code="guest_unreachable", detail=repr(error)) from None
        except BaseException:
            sock.close()
            raise
        return sock

    async def _through_guest(self, port: int) -> socket.socket:
        try:
            return await self._guest.become("ports.connect", {"port": port})
        except NotFound:
            raise port_closed(port) from None

    def in_use(self) -> bool:
        """Whether a connection is open."""
        return any(sock.fileno() >= 0 for sock in self._open)

    def hang_up(self) -> None:
        """End every connection: the sandbox is gone, and a dead peer sends no farewell."""
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def port_closed(port: int) -> GuestFailed:
    return GuestFailed(
        f"nothing listens on port {port} of the sandbox",
        code="port_closed",
        hint="Start the server inside first; `sb.ports.wait(port)` waits until it listens.",
    )
