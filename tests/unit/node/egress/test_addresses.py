"""Which addresses nobody may reach."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

import pytest

from atoll.model.errors import InvalidArgument
from atoll.node.egress.addresses import forbidden_reason, own_addresses, parse_networks

FIB = """Local:
  +-- 0.0.0.0/0 3 0 5
     |-- 127.0.0.1
        /32 host LOCAL
     |-- 192.0.2.0
        /24 link UNICAST
     |-- 192.0.2.17
        /32 host LOCAL
     |-- 192.0.2.255
        /32 link BROADCAST
"""


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "10.0.0.1", "100.100.100.200", "127.0.0.1", "169.254.169.254", "172.31.0.1", "192.168.0.1"),
        *("192.0.0.192", "168.63.129.16", "198.18.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1"),
    ],
)
def test_private_and_metadata_addresses(address: str) -> None:
    assert forbidden_reason(IPv4Address(address), frozenset(), ()) == "private_address"
    assert forbidden_reason(IPv4Address(address), frozenset(), (IPv4Network(address),)) == ""


def test_public_and_own_addresses() -> None:
    public = IPv4Address("93.184.216.34")
    assert forbidden_reason(public, frozenset(), ()) == ""
    assert forbidden_reason(public, frozenset({public}), ()) == "host_address"


def test_what_the_operator_has_closed_is_closed_within_what_is_open() -> None:
    """The address under which a cloud shows the host to the world is on none of its interfaces."""
    network, address = IPv4Network("93.184.216.0/24"), IPv4Address("93.184.216.34")
    closed = (IPv4Network(address),)
    assert forbidden_reason(address, frozenset(), (), closed) == "closed_address"
    assert forbidden_reason(address, frozenset(), (network,), closed) == "closed_address"
    assert forbidden_reason(IPv4Address("93.184.216.35"), frozenset(), (), closed) == ""


def test_own_addresses_are_read_from_the_kernels_table() -> None:
    assert own_addresses(FIB) == {IPv4Address("127.0.0.1"), IPv4Address("192.0.2.17")}


def test_networks_of_the_operator() -> None:
    assert parse_networks("10.0.0.0/8, 192.0.2.7") == (IPv4Network("10.0.0.0/8"), IPv4Network("192.0.2.7/32"))
    assert parse_networks("") == ()
    with pytest.raises(InvalidArgument):
        parse_networks("10.0.0.1/8")
