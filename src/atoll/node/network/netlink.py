"""The kernel's own protocol for links, addresses, routes and counters, as far as a pair of namespaces needs it.

A message is a header, a fixed body and attributes, each padded to four bytes. The builders are pure; `Route`
sends one and waits for the kernel's verdict. Numbers are those of linux/rtnetlink.h, if_link.h, if_addr.h, veth.h and
netfilter/nf_tables.h.
"""

from __future__ import annotations

import os
import socket
import struct
from types import TracebackType

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_LINK = struct.Struct("=BxHiII")  # family, hardware type, index, flags, which flags change
_ADDRESS = struct.Struct("=BBBBi")  # family, prefix, flags, scope, link
_ROUTE = struct.Struct("=BBBBBBBBI")  # family, prefixes, tos, table, protocol, scope, type, flags

_REQUEST, _ACK, _EXCLUSIVE, _CREATE = 0x1, 0x4, 0x200, 0x400
_ERROR = 2
_LINK_NEW, _ADDRESS_NEW, _ROUTE_NEW = 16, 20, 24
_UP = 0x1
_TABLE_MAIN, _STATIC, _UNICAST = 254, 4, 1
_ANSWER_BYTES = 8192
_NETLINK_NETFILTER, _OBJECT_NEW, _OBJECT_GET = 12, 10 << 8 | 18, 10 << 8 | 19
_FAMILY_INET, _OBJECT_COUNTER = 1, 1


def attribute(kind: int, value: bytes) -> bytes:
    length = 4 + len(value)
    return struct.pack("=HH", length, kind) + value + bytes(-length % 4)


def veth(name: str, mac: str, peer: str, peer_mac: str, peer_netns_fd: int) -> bytes:
    """A wire: one end here, the other in the namespace of the descriptor."""
    other_end = _end(peer, peer_mac) + attribute(28, struct.pack("=I", peer_netns_fd))
    kind = attribute(1, b"veth") + attribute(2, attribute(1, other_end))
    return _end(name, mac) + attribute(18, kind)


def link_up(index: int) -> bytes:
    return _LINK.pack(socket.AF_UNSPEC, 0, index, _UP, _UP)


def address(index: int, ip: str, prefix_bits: int) -> bytes:
    raw = socket.inet_aton(ip)
    return _ADDRESS.pack(socket.AF_INET, prefix_bits, 0, 0, index) + attribute(2, raw) + attribute(1, raw)


def default_route(via: str) -> bytes:
    head = _ROUTE.pack(socket.AF_INET, 0, 0, 0, _TABLE_MAIN, _STATIC, 0, _UNICAST, 0)
    return head + attribute(5, socket.inet_aton(via))


def counter(table: str, name: str) -> bytes:
    """A named counter of a table of rules."""
    named = attribute(1, table.encode() + b"\0") + attribute(2, name.encode() + b"\0")
    return struct.pack("=BBH", _FAMILY_INET, 0, 0) + named + attribute(3, struct.pack(">I", _OBJECT_COUNTER))


def packets(answer: bytes) -> int:
    """How many packets a counter has seen, by the kernel's answer; none if there is no such counter."""
    if len(answer) < _HEADER.size + 4 or _HEADER.unpack_from(answer)[1] != _OBJECT_NEW:
        return 0
    data = _attributes(answer[_HEADER.size + 4 :]).get(4, b"")
    return int.from_bytes(_attributes(data).get(2, b""))


def _attributes(raw: bytes) -> dict[int, bytes]:
    found, at = {}, 0
    while at + 4 <= len(raw):
        length, kind = struct.unpack_from("=HH", raw, at)
        found[kind & 0x3FFF] = raw[at + 4 : at + length]
        at += max(4, length + -length % 4)
    return found


def counted(table: str, name: str) -> int:
    """The packets of a counter in the network namespace of this thread; the kernel answers within the call."""
    body = counter(table, name)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER) as sock:
        sock.send(_HEADER.pack(_HEADER.size + len(body), _OBJECT_GET, _REQUEST, 1, 0) + body)
        return packets(sock.recv(_ANSWER_BYTES))


def verdict(answer: bytes) -> int:
    """The error number in the kernel's answer to a request; 0 is success."""
    if len(answer) < _HEADER.size + 4 or _HEADER.unpack_from(answer)[1] != _ERROR:
        raise OSError("the kernel did not answer a request about the network")
    return -int(struct.unpack_from("=i", answer, _HEADER.size)[0])


def _end(name: str, mac: str) -> bytes:
    link = _LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
    return link + attribute(3, name.encode() + b"\0") + attribute(1, bytes.fromhex(mac.replace(":", "")))


class Route:
    """A conversation with the kernel about the network namespace of the thread that begins it."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._count = 0

    def __enter__(self) -> Route:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def link_add(self, body: bytes) -> None:
        self._ask(_LINK_NEW, _CREATE | _EXCLUSIVE, body)

    def link_up(self, name: str) -> None:
        self._ask(_LINK_NEW, 0, link_up(socket.if_nametoindex(name)))

    def address_add(self, name: str, ip: str, prefix_bits: int) -> None:
        self._ask(_ADDRESS_NEW, _CREATE | _EXCLUSIVE, address(socket.if_nametoindex(name), ip, prefix_bits))

    def default_route_add(self, via: str) -> None:
        self._ask(_ROUTE_NEW, _CREATE | _EXCLUSIVE, default_route(via))

    def _ask(self, kind: int, flags: int, body: bytes) -> None:
        self._count += 1
        head = _HEADER.pack(_HEADER.size + len(body), kind, flags | _REQUEST | _ACK, self._count, 0)
        self._socket.send(head + body)
        number = verdict(self._socket.recv(_ANSWER_BYTES))
        if number:
            raise OSError(number, os.strerror(number))
