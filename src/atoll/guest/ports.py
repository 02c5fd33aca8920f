"""Ports that listen in the sandbox, and by which process: read from /proc, waited for and watched."""

from __future__ import annotations

import os
import select
import socket
import struct
import time
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


def listening(own_port: int) -> list[Listening]:
    """All but the guest's own, each address and port once."""
    found: dict[tuple[str, int], Listening] = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii", errors="replace") as file:
                for entry in parse_table(file.read(16 * limits.MIB)):
                    if entry.port != own_port:
                        found.setdefault((entry.address, entry.port), entry)
        except OSError:
            continue
    return sorted(found.values(), key=lambda entry: (entry.port, entry.address))


def owners(inodes: set[int]) -> dict[int, tuple[int, str]]:
    """Which process holds which socket: pid and name."""
    found: dict[int, tuple[int, str]] = {}
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    for name in os.listdir("/proc"):
        if not name.isdecimal() or len(found) == len(inodes):
            continue
        try:
            for fd in os.listdir(f"/proc/{name}/fd"):
                inode = wanted.get(os.readlink(f"/proc/{name}/fd/{fd}"))
                if inode is not None and inode not in found:
                    with open(f"/proc/{name}/comm", encoding="utf-8", errors="surrogateescape") as file:
                        found[inode] = int(name), file.read(64).strip()
        except OSError:
            continue
    return found


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
    pause_s = 0.005
    while True:
        entries = [entry for entry in listening(agent.port) if entry.port == port]
        if entries:
            channel.send_ok({"ports": describe(entries)})
            return
        if time.monotonic() >= deadline_s:
            raise Refused("timeout", f"nothing listens on port {port} yet")
        _pause(channel, pause_s)
        pause_s = min(limits.PORTS_POLL_S, pause_s * 1.5)


def watch(agent: Agent, _params: Params, channel: Channel) -> None:
    """First what listens now, then an event for each port that opens or closes, until the client leaves."""
    before = {(entry.address, entry.port): entry for entry in listening(agent.port)}
    channel.send_event("ports", {"ports": describe(list(before.values()))[:4096]})
    while True:
        _pause(channel, limits.PORTS_POLL_S)
        now = {(entry.address, entry.port): entry for entry in listening(agent.port)}
        for described in describe([entry for key, entry in now.items() if key not in before]):
            channel.send_event("opened", described)
        for key, entry in before.items():
            if key not in now:
                channel.send_event("closed", {"address": entry.address, "port": entry.port})
        before = now


def _pause(channel: Channel, duration_s: float) -> None:
    """Sleep, but notice at once when the client leaves."""
    readable, _, _ = select.select([channel.socket], [], [], duration_s)
    if readable and not channel.socket.recv(1, socket.MSG_PEEK):
        raise Disconnected("the client left")
