"""Network namespaces: make a pair, remove it, and open sockets inside it.

A socket belongs to the namespace it was made in, whoever uses it later. So a thread steps into a namespace for the one
system call that makes the socket, and out again; from then on it is a socket like any other on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from atoll.model import limits
from atoll.model.errors import GuestFailed, Internal
from atoll.node import spawn
from atoll.node.names import NETNS_FOLDER, HostNames
from atoll.node.network import plan
from atoll.node.network.plan import Pair

_CLONE_NEWNET = 0x40000000


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
        with _inside(self._outer_fd):
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def listen_tcp(self, port: int) -> socket.socket:
        """A socket that takes the connections which the sandbox opens."""
        with _inside(self._outer_fd):
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        return _bound(sock, port, limits.EGRESS_BACKLOG)

    def listen_udp(self, port: int) -> socket.socket:
        """A socket that takes the datagrams which the sandbox sends to this port."""
        with _inside(self._outer_fd):
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        return _bound(sock, port, 0)

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
    """Make both namespaces, the wire between them and the rules; some twenty milliseconds, so it is done in advance."""
    await _ip("-batch", "-", stdin=plan.creation(pair))
    for name in (pair.inner, pair.outer):
        _ipv6_disable(name)
    await _ip("-n", pair.inner, "-batch", "-", stdin=plan.inner_setup())
    await _ip("-n", pair.outer, "-batch", "-", stdin=plan.outer_setup())
    await spawn.run_async(["ip", "netns", "exec", pair.outer, "nft", "-f", "-"], stdin=plan.rules().encode())


async def pair_remove(pair: Pair) -> None:
    """Remove both namespaces and with them the wire; idempotent."""
    for name in (pair.inner, pair.outer):
        if (NETNS_FOLDER / name).exists():
            # A file without a mount on it is what a killed `ip netns add` leaves: then `delete` fails to unmount, and
            # still unlinks the file. What counts is that the name is gone.
            finished = await spawn.run_async(["ip", "netns", "delete", name], check=False)
            if finished.exit_code != 0 and (NETNS_FOLDER / name).exists():
                (NETNS_FOLDER / name).unlink()


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
        fd = os.open(NETNS_FOLDER / netns, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    try:
        with _inside(fd):
            return [name for _, name in socket.if_nameindex()]
    except OSError:
        return []
    finally:
        os.close(fd)


async def _ip(*argv: str, stdin: str) -> None:
    await spawn.run_async(["ip", *argv], stdin=stdin.encode())


def _ipv6_disable(netns: str) -> None:
    fd = os.open(NETNS_FOLDER / netns, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with _inside(fd):
            for which in ("all", "default"):
                with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6 has nothing to disable
                    Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6").write_text("1")
    finally:
        os.close(fd)


@contextlib.contextmanager
def _inside(netns_fd: int) -> Iterator[None]:
    """Step into a namespace and out again. There must be no `await` inside: the whole thread is in there."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _setns(netns_fd)
        try:
            yield
        finally:
            try:
                _setns(home)
            except OSError:
                # A server whose thread is lost in a sandbox's namespace must not go on.
                os.abort()
    finally:
        os.close(home)


_libc = ctypes.CDLL(None, use_errno=True)


def _setns(fd: int) -> None:
    if _libc.setns(fd, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
