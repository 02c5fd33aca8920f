"""E2B's network settings as our policy."""

from __future__ import annotations

import pytest

from atoll.api.compat.e2b import network
from atoll.api.compat.e2b.network import HostRule, NetworkSettings, Transform
from atoll.model.errors import InvalidArgument
from atoll.model.policy import Address, Mode, Policy, compile_policy, decide
from atoll.model.port import PortAccess


def test_without_settings_the_internet_is_open_and_nothing_private() -> None:
    assert network.policy_of(NetworkSettings(), None).mode is Mode.PUBLIC


def test_no_internet_means_what_is_listed() -> None:
    policy = network.policy_of(NetworkSettings(allow_out=["example.com", "192.0.2.1"]), False)
    assert (policy.mode, policy.allow) == (Mode.LISTED, ("example.com", "192.0.2.1:*"))
    assert network.policy_of(NetworkSettings(), False).allow == ()


def test_denying_all_is_no_internet() -> None:
    policy = network.policy_of(NetworkSettings(deny_out=["0.0.0.0/0"], allow_out=["*.example.com"]), None)
    assert (policy.mode, policy.allow) == (Mode.LISTED, ("*.example.com",))


def test_what_is_allowed_wins_over_what_is_denied() -> None:
    settings = NetworkSettings(deny_out=["198.51.100.0/24"], allow_out=["198.51.100.7"])
    compiled = compile_policy(network.policy_of(settings, None), {})
    assert decide(compiled, None, Address("198.51.100.7"), 443).allowed
    assert not decide(compiled, None, Address("198.51.100.8"), 443).allowed
    assert decide(compiled, None, Address("203.0.113.1"), 443).allowed


def test_headers_are_set_for_a_host_and_shown_as_they_were_asked_for() -> None:
    headers = {"X-Team": "blue", "X-Key": "Bearer ${e2b.secrets.k}"}
    policy = network.policy_of(NetworkSettings(rules={"api.example.com": [HostRule(Transform(headers))]}), None)
    assert dict(policy.http[0].set_headers) == {"X-Team": "blue", "X-Key": "Bearer ${secrets.k}"}
    assert network.shape_of(policy)["rules"] == {"api.example.com": [{"transform": {"headers": headers}}]}


@pytest.mark.parametrize(
    ("deny", "allow"),
    [
        (["198.51.100.0/24"], ["198.51.100.7"]),
        (["198.51.100.0/24", "203.0.113.7"], ["198.51.100.0/28", "198.51.100.7", "192.0.2.1"]),
        (["203.0.113.0/24"], []),
        ([], ["192.0.2.1"]),
        (["0.0.0.0/0"], ["192.0.2.1", "192.0.2.0/28", "*.example.com"]),
        (["0.0.0.0/0"], []),
    ],
)
def test_what_is_read_can_be_set_again(deny: list[str], allow: list[str]) -> None:
    policy = network.policy_of(NetworkSettings(deny_out=deny, allow_out=allow), None)
    shape = network.shape_of(policy)
    assert (shape["denyOut"], shape.get("allowOut", [])) == (deny, allow)
    again = NetworkSettings(deny_out=shape["denyOut"], allow_out=shape.get("allowOut", []))
    assert network.policy_of(again, None) == policy


def test_what_is_allowed_beside_or_over_what_is_denied_comes_to_the_same() -> None:
    for deny, allow in ((["198.51.100.1"], ["198.51.100.0"]), (["198.51.100.7"], ["198.51.100.0/24"])):
        policy = network.policy_of(NetworkSettings(deny_out=deny, allow_out=allow), None)
        shape = network.shape_of(policy)
        again = NetworkSettings(deny_out=shape["denyOut"], allow_out=shape["allowOut"])
        assert network.policy_of(again, None) == policy


def test_without_the_sixth_version_nothing_of_the_fourth_is_closed() -> None:
    policy = network.policy_of(NetworkSettings(deny_out=["::/0", "2001:db8::1"], allow_out=["2001:db8::2"]), None)
    assert policy == Policy(mode=Mode.PUBLIC)


def test_a_network_may_be_written_with_any_address_in_it() -> None:
    policy = network.policy_of(NetworkSettings(deny_out=["0.0.0.0/0"], allow_out=["192.0.2.7/24"]), None)
    assert compile_policy(policy, {}).policy.allow == ("192.0.2.0/24:*",)


@pytest.mark.parametrize("allow", ["example.com", "*.example.com", "not an address"])
def test_names_are_allowed_only_where_all_is_denied(allow: str) -> None:
    with pytest.raises(InvalidArgument, match="you must include 'ALL_TRAFFIC' in deny out"):
        network.policy_of(NetworkSettings(allow_out=[allow], deny_out=["198.51.100.0/24"]), None)


@pytest.mark.parametrize(
    "settings",
    [
        NetworkSettings(egress_proxy={"address": "socks5://x"}),
        NetworkSettings(dns_servers=["192.0.2.1"]),
        NetworkSettings(deny_out=["example.com"]),
        NetworkSettings(rules={"a.example": [HostRule(Transform({"X": "${e2b.identity.tokens.x}"}))]}),
    ],
)
def test_what_cannot_be_kept_is_refused(settings: NetworkSettings) -> None:
    with pytest.raises(InvalidArgument):
        network.policy_of(settings, None)


def test_a_policy_is_shown_in_their_words() -> None:
    settings = NetworkSettings(deny_out=["0.0.0.0/0"], allow_out=["example.com", "192.0.2.1"])
    shape = network.shape_of(network.policy_of(settings, None), PortAccess(True))
    assert shape == {"allowPublicTraffic": True, "denyOut": ["0.0.0.0/0"], "allowOut": ["example.com", "192.0.2.1"]}


@pytest.mark.parametrize(
    ("settings", "ports"),
    [
        (NetworkSettings(), PortAccess(public=True)),
        (NetworkSettings(allow_public_traffic=False), PortAccess()),
        (NetworkSettings(mask_request_host="a.example:${PORT}"), PortAccess(public=True, mask_host="a.example:{port}")),
    ],
)
def test_ports_are_open_unless_a_sandbox_is_made_otherwise(settings: NetworkSettings, ports: PortAccess) -> None:
    assert network.ports_of(settings) == ports
