"""A pair of namespaces, made and removed for real: what is in it, and what a kill in the middle leaves."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

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
    assert found.count("policy drop") == 2
    assert found.count("redirect to") == 2


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
