"""Ports that listen in the sandbox, and by which process: read from /proc, waited for and watched."""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from atoll.guest.channel import Channel
from atoll.guest.failure import Disconnected, Refused
from atoll.guest.params import Params, integer, seconds
from atoll.model import limits

if TYPE_CHECKING:
    from atoll.guest.agent import Agent

_LISTEN = "0A"


class Listening(NamedTuple):
    address: str
    port: int
    inode: int


def parse_address(text: str) -> tuple[str, int]:
    """`0100007F:1F90` and its longer relative: words in the host's byte order, as /proc/net writes them."""
    host, _, port = text.partition(":")
    words = [struct.pack("=I", int(host[index : index + 8], 16)) for index in range(0, len(host), 8)]
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    return socket.inet_ntop(family, b"".join(words)), int(port, 16)


def parse_table(text: str) -> list[Listening]:
    """The listening sockets in a table like /proc/net/tcp."""
    found = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10 or fields[3] != _LISTEN:
            continue
        try:
            found.append(Listening(*parse_address(fields[1]), int(fields[9])))
        except (ValueError, struct.error):
            continue
    return found


def read_tables() -> list[bytes]:
    """Both tables as they are now, with as few system calls as can be: they are read often while somebody watches."""
    tables = []
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        table = b""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            while (piece := os.read(fd, limits.PORTS_READ_BYTES)) and len(table) < limits.PORTS_TABLE_BYTES_MAX:
                table += piece
        except OSError:
            pass
        finally:
            os.close(fd)
        tables.append(table)
    return tables


def sockets(tables: list[bytes], own_port: int) -> list[Listening]:
    """All that listen but the guest's own, in order; several may share an address and port."""
    found = [entry for table in tables for entry in parse_table(table.decode("ascii", "replace"))]
    return sorted((entry for entry in found if entry.port != own_port), key=lambda e: (e.port, e.address, e.inode))


def places(found: list[Listening]) -> dict[tuple[str, int], Listening]:
    """Each address and port once."""
    first: dict[tuple[str, int], Listening] = {}
    for entry in found:
        first.setdefault((entry.address, entry.port), entry)
    return first


def listening(own_port: int) -> list[Listening]:
    return list(places(sockets(read_tables(), own_port)).values())


def owners(inodes: set[int]) -> dict[int, tuple[int, str]]:
    """Which process holds which socket: pid and name."""
    found: dict[int, tuple[int, str]] = {}
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    for name in os.listdir("/proc"):
        if not name.isdecimal() or len(found) == len(inodes):
            continue
        held = {wanted[target] for target in _descriptors(name) if target in wanted} - found.keys()
        if held:
            try:
                with open(f"/proc/{name}/comm", encoding="utf-8", errors="surrogateescape") as file:
                    holder = int(name), file.read(64).strip()
            except OSError:
                continue
            found.update(dict.fromkeys(held, holder))
    return found


def _descriptors(pid: str) -> Iterator[str]:
    """What a process has open; one that it closes meanwhile is no reason to miss the others."""
    try:
        fds = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for fd in fds:
        with suppress(OSError):
            yield os.readlink(f"/proc/{pid}/fd/{fd}")


def describe(entries: list[Listening]) -> list[Params]:
    holders = owners({entry.inode for entry in entries if entry.inode})
    described = []
    for entry in entries:
        pid, name = holders.get(entry.inode, (None, None))
        described.append({"address": entry.address, "port": entry.port, "pid": pid, "process": name})
    return described


def list_all(agent: Agent, _params: Params, channel: Channel) -> None:
    channel.send_ok({"ports": describe(listening(agent.port))[:4096]})


def wait(agent: Agent, params: Params, channel: Channel) -> None:
    """Until the port listens; looks often at first, because most servers are up soon."""
    port = integer(params, "port", low=1, high=65535)
    deadline_s = time.monotonic() + (seconds(params, "timeout_s") or limits.GUEST_REPLY_S_MAX)
    pause_s = limits.PORTS_FIRST_PAUSE_S
    while True:
        started_s = time.monotonic()
        entries = [entry for entry in listening(agent.port) if entry.port == port]
        if entries:
            channel.send_ok({"ports": describe(entries)})
            return
        looked_s = time.monotonic()
        if looked_s >= deadline_s:
            raise Refused("timeout", f"nothing listens on port {port} yet")
        _pause(channel, min(pause_s, rest_s(looked_s - started_s)))
        pause_s = min(limits.PORTS_PAUSE_S_MAX, pause_s * 1.5)


def watch(agent: Agent, _params: Params, channel: Channel) -> None:
    """First what listens now, then an event for each port that opens or closes, until the client leaves."""
    tables = read_tables()
    before = sockets(tables, agent.port)
    channel.send_event("ports", {"ports": describe(list(places(before).values()))[:4096]})
    looked_s, costs_s = time.monotonic(), (0.0, 0.0)
    while True:
        next_s = looked_s + rest_s(min(costs_s))  # of two: one look that others held up says nothing
        _pause(channel, max(0.0, next_s - time.monotonic()))
        started_s, tables_before = time.monotonic(), tables
        tables = read_tables()
        now = before if tables == tables_before else sockets(tables, agent.port)
        looked_s = time.monotonic()
        costs_s = (costs_s[1], looked_s - started_s)
        if now != before:
            _tell(channel, before, now)
            before = now


def _tell(channel: Channel, before: list[Listening], now: list[Listening]) -> None:
    opened, closed = changes(before, now)
    for entry in closed:
        channel.send_event("closed", {"address": entry.address, "port": entry.port})
    for described in describe(opened) if opened else ():
        channel.send_event("opened", described)


def changes(before: list[Listening], now: list[Listening]) -> tuple[list[Listening], list[Listening]]:
    """What has opened, and what has closed.

    A place whose sockets are all others than before has closed and opened again between two looks. Where several
    share one, as the workers of a server do, the coming and going of single ones is neither.
    """
    stayed = {(entry.address, entry.port) for entry in set(before) & set(now)}
    opened = [entry for place, entry in places(now).items() if place not in stayed]
    closed = [entry for place, entry in places(before).items() if place not in stayed]
    return opened, closed


def rest_s(cost_s: float) -> float:
    """How long to wait after a look that took so long: the dearer it is, the rarer, so that watching stays cheap."""
    return min(max(limits.PORTS_PAUSE_S_MIN, cost_s * limits.PORTS_PAUSES_PER_LOOK), limits.PORTS_PAUSE_S_MAX)


def _pause(channel: Channel, duration_s: float) -> None:
    """Sleep, but notice at once when the client leaves."""
    poll = select.poll()  # not select, which knows the first 1024 descriptors only
    poll.register(channel.socket, select.POLLIN)
    if poll.poll(duration_s * 1000) and not channel.socket.recv(1, socket.MSG_PEEK):
        raise Disconnected("the client left")
