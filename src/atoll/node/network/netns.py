"""Network namespaces: make a pair, remove it, and open sockets inside it.

A socket belongs to the namespace it was made in, whoever uses it later. So a thread steps into a namespace for the one
system call that makes the socket, and out again; from then on it is a socket like any other on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path

import anyio.to_thread

from atoll.model import limits
from atoll.model.errors import GuestFailed, Internal
from atoll.node import spawn
from atoll.node.names import NETNS_FOLDER, HostNames
from atoll.node.network import namespaces, netlink, plan
from atoll.node.network.plan import Pair


class Network:
    """One live pair of namespaces."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self._outer_fd = os.open(pair.outer_path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Let go of the namespace; it lives on until it is removed by name."""
        if self._outer_fd >= 0:
            os.close(self._outer_fd)
            self._outer_fd = -1

    def socket_open(self) -> socket.socket:
        """A TCP socket in the outer namespace, not connected yet, not blocking."""
        with namespaces.inside(self._outer_fd):
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def listen_tcp(self, port: int) -> socket.socket:
        """A socket that takes the connections which the sandbox opens."""
        with namespaces.inside(self._outer_fd):
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # and so have all that are taken from it
        return _bound(sock, port, limits.EGRESS_BACKLOG)

    def listen_udp(self, port: int) -> socket.socket:
        """A socket that takes the datagrams which the sandbox sends to this port."""
        with namespaces.inside(self._outer_fd):
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        return _bound(sock, port, 0)

    def packets_dropped(self) -> int:
        """How many packets of the sandbox were none that it may send, or too many."""
        if self._outer_fd < 0:
            return 0
        with namespaces.inside(self._outer_fd):
            return netlink.counted(plan.TABLE, plan.DROPPED)

    def dial_begin(self, port: int) -> socket.socket:
        """A connection to a port of the sandbox that is on its way; whether it arrives is seen when it is used."""
        sock = self.socket_open()
        sock.connect_ex((plan.INNER_ADDRESS, port))
        return sock

    async def dial(self, port: int) -> socket.socket:
        """A connection to a port of the sandbox."""
        sock = self.socket_open()
        try:
            async with asyncio.timeout(limits.GUEST_CONNECT_S_MAX):
                await asyncio.get_running_loop().sock_connect(sock, (plan.INNER_ADDRESS, port))
        except (OSError, TimeoutError) as error:
            sock.close()
            raise GuestFailed("the sandbox does not answer", code="guest_unreachable", detail=repr(error)) from None
        except BaseException:
            sock.close()
            raise
        return sock


def _bound(sock: socket.socket, port: int, backlog: int) -> socket.socket:
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("0.0.0.0", port))  # noqa: S104 - of a namespace that is joined to one sandbox only
        if backlog:
            sock.listen(backlog)
    except OSError as error:
        sock.close()
        raise Internal("the sandbox's network cannot be served", detail=str(error)) from error
    return sock


async def pair_create(pair: Pair) -> None:
    """Make both namespaces, the wire between them and the rules. A cancel waits for it: a thread cannot be stopped."""
    await anyio.to_thread.run_sync(_pair_create, pair)


def _pair_create(pair: Pair) -> None:
    try:
        namespaces.create(pair.outer)
        namespaces.create(pair.inner)
        with namespaces.opened(pair.outer) as outer, namespaces.opened(pair.inner) as inner:
            with namespaces.inside(outer):
                _outer_setup(inner, pair.inner_mac)
            with namespaces.inside(inner):
                _inner_setup()
    except OSError as error:
        raise Internal("the network of a sandbox cannot be made", detail=repr(error)) from error


def _outer_setup(inner: int, inner_mac: str) -> None:
    """There is no route beyond the wire itself."""
    _ipv6_disable()
    wire = netlink.veth(plan.OUTER_LINK, plan.OUTER_MAC, plan.INNER_LINK, inner_mac, inner)
    with netlink.Route() as route:
        route.link_add(wire)
        route.link_up("lo")
        route.link_up(plan.OUTER_LINK)
        route.address_add(plan.OUTER_LINK, plan.OUTER_ADDRESS, plan.PREFIX_BITS)
    # By the program: its library waits with select(), which ends a process that has more than 1,024 files open. What a
    # thread starts in a namespace is in that namespace.
    spawn.run(["nft", "-f", "-"], stdin=plan.rules().encode())
    # Now the kernel tracks connections here, if it did not before.
    (Path("/proc/sys") / plan.FORGOTTEN_AFTER).write_text(str(limits.NETWORK_UNANSWERED_S))


def _inner_setup() -> None:
    _ipv6_disable()
    with netlink.Route() as route:
        route.link_up("lo")
        route.link_up(plan.INNER_LINK)
        route.address_add(plan.INNER_LINK, plan.INNER_ADDRESS, plan.PREFIX_BITS)
        route.default_route_add(plan.OUTER_ADDRESS)


def _ipv6_disable() -> None:
    for which in ("all", "default"):
        with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6 has nothing to disable
            Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6").write_text("1")


async def pair_remove(pair: Pair) -> None:
    """Remove both namespaces and with them the wire; idempotent."""
    await anyio.to_thread.run_sync(_pair_remove, pair)


def _pair_remove(pair: Pair) -> None:
    try:
        for name in (pair.inner, pair.outer):
            namespaces.remove(name)
    except OSError as error:
        raise Internal("the network of a sandbox cannot be removed", detail=repr(error)) from error


def pairs(names: HostNames) -> list[Pair]:
    """All pairs of this server, also half made ones."""
    try:
        entries = os.listdir(NETNS_FOLDER)
    except FileNotFoundError:
        return []
    slots = {slot for entry in entries if (slot := names.netns_slot(entry)) is not None}
    return [Pair.of(names, slot) for slot in sorted(slots)]


def links(netns: str) -> list[str]:
    """The links in a namespace; none if it is gone or only half made."""
    try:
        with namespaces.opened(netns) as fd, namespaces.inside(fd):
            return [name for _, name in socket.if_nameindex()]
    except OSError:
        return []
