"""A pair of namespaces, made and removed for real: what is in it, and what a kill in the middle leaves."""

from __future__ import annotations

import json
import os
import resource
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from atoll.model import limits
from atoll.model.errors import Internal
from atoll.node.names import NETNS_FOLDER, HostNames
from atoll.node.network import namespaces, netns, plan
from atoll.node.network.plan import Pair


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair.of(HostNames.of(tmp_path), "ab12")
    yield made
    anyio.run(netns.pair_remove, made)
    assert not Path(made.inner_path).exists()
    assert not Path(made.outer_path).exists()


def look(namespace: str, *words: str) -> Any:
    return json.loads(subprocess.run(["ip", "-j", "-n", namespace, *words], capture_output=True, check=True).stdout)


def test_the_outer_namespace_has_one_wire_and_no_way_on(pair: Pair) -> None:
    anyio.run(netns.pair_create, pair)
    links = {link["ifname"]: link for link in look(pair.outer, "addr")}
    assert set(links) == {"lo", plan.OUTER_LINK}
    assert [found["local"] for found in links[plan.OUTER_LINK]["addr_info"]] == [plan.OUTER_ADDRESS]
    assert links[plan.OUTER_LINK]["address"] == plan.OUTER_MAC
    assert [route["dst"] for route in look(pair.outer, "route")] == ["10.0.0.0/30"]
    assert look(pair.outer, "-6", "addr") == []


def test_the_inner_namespace_has_a_default_route_to_the_outer(pair: Pair) -> None:
    anyio.run(netns.pair_create, pair)
    links = {link["ifname"]: link for link in look(pair.inner, "addr")}
    assert set(links) == {"lo", plan.INNER_LINK}
    assert links[plan.INNER_LINK]["address"] == pair.inner_mac
    assert "UP" in links[plan.INNER_LINK]["flags"]
    ways = {route["dst"]: route.get("gateway") for route in look(pair.inner, "route")}
    assert ways == {"default": plan.OUTER_ADDRESS, "10.0.0.0/30": None}
    assert look(pair.inner, "-6", "addr") == []


def test_the_rules_are_in_the_kernel(pair: Pair) -> None:
    anyio.run(netns.pair_create, pair)
    listing = ["ip", "netns", "exec", pair.outer, "nft", "list", "ruleset"]
    found = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
    assert found.count("policy drop") == 3
    assert found.count("redirect to") == 2


SYN, ACK = 0x02, 0x10
INSIDE, OUTSIDE = socket.inet_aton(plan.INNER_ADDRESS), socket.inet_aton("203.0.113.9")
FLOODS = [(socket.IPPROTO_TCP, SYN), (socket.IPPROTO_TCP, ACK), (socket.IPPROTO_UDP, 53), (socket.IPPROTO_UDP, 443)]


def packet(port: int, protocol: int, kind: int) -> bytes:
    """What a sandbox that writes its packets itself can send, from this port to a place outside."""
    body = struct.pack("!HHHH", port, kind, 8, 0)
    if protocol == socket.IPPROTO_TCP:
        words = (port, 443, 0, 1, 0, 1 if kind == ACK else 0, 5 << 12 | kind, 1024)
        rest = sum(words) + sum(struct.unpack("!HHHH", INSIDE + OUTSIDE)) + protocol + 20
        body = struct.pack("!8HHH", *words, 0xFFFF - (rest % 0xFFFF), 0)
    return struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 0, 0, 64, protocol, 0, INSIDE, OUTSIDE) + body


def test_a_flood_from_inside_leaves_little_in_the_kernels_memory(pair: Pair) -> None:
    """Of each kind one packet from each of 20,000 ports; and all the same a connection goes through soon after."""
    anyio.run(netns.pair_create, pair)
    network = netns.Network(pair)
    begin_s = time.monotonic()
    with namespaces.opened(pair.inner) as inner, namespaces.inside(inner):
        raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    with raw, network.listen_tcp(plan.PROXY_PORT) as proxy:
        for protocol, kind in FLOODS:
            for port in range(20_000, 40_000):
                raw.sendto(packet(port, protocol, kind), ("203.0.113.9", 0))
        took_s = time.monotonic() - begin_s
        held = tracked(pair)
        assert network.packets_dropped() >= 20_000, "all of the last kind, and most others"
        assert 0 < held < 4000 + took_s * (limits.NETWORK_SYNS_PER_S + limits.NETWORK_QUESTIONS_PER_S)
        with namespaces.opened(pair.inner) as inner, namespaces.inside(inner):
            client = socket.socket()
        with client:
            client.settimeout(10)
            client.connect(("203.0.113.9", 443))
            proxy.settimeout(10)
            proxy.accept()[0].close()
    network.close()


def tracked(pair: Pair) -> int:
    """How many connections the kernel remembers."""
    with namespaces.opened(pair.outer) as outer, namespaces.inside(outer):
        return int(Path("/proc/sys/net/netfilter/nf_conntrack_count").read_text())


def test_it_does_not_matter_how_many_files_are_open(pair: Pair) -> None:
    """A server of two hundred sandboxes has some four thousand; what waits with select() knows 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), max(hard, 2048)))
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    try:
        anyio.run(netns.pair_create, pair)
    finally:
        for fd in opened:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert netns.links(pair.outer) == ["lo", plan.OUTER_LINK]


def test_what_exists_is_not_made_again_and_nothing_is_lost(pair: Pair) -> None:
    anyio.run(netns.pair_create, pair)
    with pytest.raises(Internal):
        anyio.run(netns.pair_create, pair)
    assert netns.links(pair.outer) == ["lo", plan.OUTER_LINK]


def test_what_a_kill_in_the_middle_left_is_removed(pair: Pair) -> None:
    """A name without a namespace behind it, and a namespace without its other half."""
    (NETNS_FOLDER / pair.inner).touch()
    namespaces.create(pair.outer)
    anyio.run(netns.pair_remove, pair)
    assert not Path(pair.inner_path).exists()
    assert not Path(pair.outer_path).exists()
    anyio.run(netns.pair_remove, pair)  # and again, when there is nothing


def test_the_thread_is_at_home_again_after_each_step(pair: Pair) -> None:
    home = Path("/proc/thread-self/ns/net").readlink()
    netns._pair_create(pair)
    assert netns.links(pair.inner) == ["lo", plan.INNER_LINK]
    assert Path("/proc/thread-self/ns/net").readlink() == home
