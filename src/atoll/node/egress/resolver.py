"""Names to addresses, asked of the operator's servers, from the host's own namespace.

Each question goes out from a fresh port with a fresh number, and only its own answer is taken. Nothing is kept here: a
sandbox keeps its answers itself, and the gate remembers what it was told.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path

import anyio

from atoll.model import limits
from atoll.model.errors import InvalidArgument
from atoll.node.egress.dns_message import SERVER_FAILED, Answer, DnsError, build_query, parse_answer

Server = tuple[str, int]
FAILED = Answer(SERVER_FAILED, False, (), 0)


class Resolver:
    """The servers that know names. Without any configured, those of the host, looked up each time."""

    def __init__(self, servers: Sequence[Server] = (), resolv_conf: Path = Path("/etc/resolv.conf")) -> None:
        self._servers = tuple(servers)
        self._resolv_conf = resolv_conf

    async def resolve(self, name: str) -> Answer:
        """What is known about a name; FAILED if nobody answers."""
        for server in self._servers or self._host_servers():
            try:
                with anyio.fail_after(limits.DNS_TIMEOUT_S):
                    return await _ask(server, name)
            except (OSError, TimeoutError, DnsError):
                continue
        return FAILED

    def _host_servers(self) -> tuple[Server, ...]:
        try:
            lines = self._resolv_conf.read_text().splitlines()
        except (OSError, ValueError):
            return ()
        return tuple((parts[1], 53) for line in lines if (parts := line.split())[:1] == ["nameserver"] and parts[1:])


def parse_servers(text: str) -> tuple[Server, ...]:
    """`192.0.2.1` or `192.0.2.1:5353`, with commas between."""
    servers = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, _, port = part.partition(":")
        try:
            ipaddress.IPv4Address(host)
            servers.append((host, int(port or 53)))
        except ValueError:
            raise InvalidArgument(f"{part[:80]!r} is not the address of a server", code="invalid_settings") from None
    return tuple(servers)


async def _ask(server: Server, name: str) -> Answer:
    query = build_query(secrets.randbelow(65536), name)
    answer = await _ask_udp(server, query)
    return await _ask_tcp(server, query) if answer.truncated else answer


async def _ask_udp(server: Server, query: bytes) -> Answer:
    loop = asyncio.get_running_loop()
    with contextlib.closing(_socket(server, socket.SOCK_DGRAM)) as sock:
        sock.connect(server)
        await loop.sock_sendall(sock, query)
        while True:
            message = await loop.sock_recv(sock, limits.DNS_ANSWER_BYTES_MAX)
            try:
                return parse_answer(message, query)
            except DnsError:
                continue  # a forged or late answer; the right one may still come


async def _ask_tcp(server: Server, query: bytes) -> Answer:
    loop = asyncio.get_running_loop()
    with contextlib.closing(_socket(server, socket.SOCK_STREAM)) as sock:
        await loop.sock_connect(sock, server)
        await loop.sock_sendall(sock, len(query).to_bytes(2) + query)
        data = b""
        while len(data) < 2 or len(data) < 2 + int.from_bytes(data[:2]):
            part = await loop.sock_recv(sock, 65537)
            if not part:
                raise DnsError("the answer is cut off")
            data += part
        return parse_answer(data[2:], query)


def _socket(server: Server, kind: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in server[0] else socket.AF_INET
    return socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
