"""Places for connections of all sandboxes: a bound for all, and a share for each owner."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Any

import pytest

from atoll.model import limits
from atoll.model.policy import Policy, compile_policy
from atoll.node.egress.gate import Flow, Gate
from atoll.node.egress.places import Places
from atoll.wire.network import NetworkOrder

ADDRESS = IPv4Address("198.51.100.7")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EGRESS_PLACES_MAX", 16)


def gate(places: Places, owner: str) -> Gate:
    made = Gate(f"sandbox of {owner}", lambda *_: None, places=places)
    made.apply(NetworkOrder(compile_policy(Policy(allow=(str(ADDRESS),), connections_max=4096), {}), owner=owner))
    return made


def filled(made: Gate) -> list[Flow]:
    """Connections until one is turned away, and why it was."""
    nobody: Any = None
    flows: list[Flow] = []
    while not made.refuse_early():
        flows.append(Flow(ADDRESS, 443, nobody, 0.0))
        made.opened(flows[-1])
    return flows


def test_one_owner_leaves_places_for_others_whatever_number_of_sandboxes_it_has() -> None:
    places = Places()
    one, two, other = gate(places, "ann"), gate(places, "ann"), gate(places, "bob")
    flows = filled(one)
    assert len(flows) == 12, "three quarters of all"
    assert filled(two) == []
    assert one.refuse_early() == two.refuse_early() == "too_many_connections"
    assert len(filled(other)) == 3
    for flow in flows:
        one.ended(flow)
    assert places.taken == 3
    assert filled(two), "what was given back can be had again"


def test_a_connection_that_costs_more_takes_more_places_if_they_are_there_and_gives_all_back() -> None:
    places = Places()
    made = gate(places, "ann")
    nobody: Any = None
    flows = [Flow(ADDRESS, 443, nobody, 0.0) for _ in range(5)]
    for flow in flows:
        made.opened(flow)
    assert [made.may_cost(flow, 4) for flow in flows] == [True, True, True, False, False]
    assert places.taken == 14
    for flow in flows:
        made.ended(flow)
    assert places.taken == 0
