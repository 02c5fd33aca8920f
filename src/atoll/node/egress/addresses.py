"""Addresses that nobody may reach from a sandbox: private, link-local, metadata, reserved, and the host's own. Pure.

The operator's configuration may open some of them again, and close more, such as the address under which the host is
known outside where no interface has it; a policy never can.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable

from atoll.model.errors import InvalidArgument

Address = ipaddress.IPv4Address
Network = ipaddress.IPv4Network

# Written out and not left to `is_private`, whose answer differs between versions of Python.
FORBIDDEN = tuple(
    Network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16"),
        *("192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        "168.63.129.16/32",  # a cloud's own services, on an address that looks public
    )
)

_LOCAL = re.compile(r"\|-- ([\d.]+)\n\s+/32 host LOCAL")


def forbidden_reason(
    address: Address, own: Collection[Address], opened: Iterable[Network], closed: Iterable[Network] = ()
) -> str:
    """Why this address is out of bounds; empty if it is not. What is closed stays so within what is opened."""
    if any(address in network for network in closed):
        return "closed_address"
    if any(address in network for network in opened):
        return ""
    if address in own:
        return "host_address"
    if any(address in network for network in FORBIDDEN) or not address.is_global:
        return "private_address"
    return ""


def own_addresses(fib_trie: str) -> frozenset[Address]:
    """The host's own addresses, out of `/proc/net/fib_trie`."""
    return frozenset(Address(text) for text in _LOCAL.findall(fib_trie))


def parse_networks(text: str) -> tuple[Network, ...]:
    """Networks as an operator writes them, with commas between."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    try:
        return tuple(Network(part) for part in parts)
    except ValueError as error:
        raise InvalidArgument(f"not a network: {error}", code="invalid_settings") from None
