"""Where a request came from, if proxies that the operator trusts have passed it on; pure.

Each proxy adds at the end of `X-Forwarded-For` whom it was asked by. So the list is read from its end, for as long as
it was written by one that is trusted: what stands before that anybody may have made up.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence

from atoll.model import limits
from atoll.model.errors import InvalidArgument

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Some proxies add the port: 192.0.2.1:4711, [2001:db8::1]:4711.
_WITH_PORT = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<v4>[\d.]+))(?::\d{1,5})?")


def parse_proxies(text: str) -> tuple[Network, ...]:
    """Addresses and networks as an operator writes them, with commas between."""
    try:
        return tuple(ipaddress.ip_network(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise InvalidArgument(f"trusted_proxies: {error}", code="invalid_settings") from None


def origin(peer: str, forwarded: Iterable[str], trusted: Sequence[Network]) -> str:
    """The address that a request came from; `forwarded` are the values of the header, as they were sent."""
    source = peer
    hops = ",".join(forwarded).rsplit(",", limits.PROXY_HOPS_MAX)[-limits.PROXY_HOPS_MAX :]
    for told in reversed(hops):
        address = _address(source)
        if address is None or not any(address in network for network in trusted):
            break
        before = _address(told.strip())
        if before is None:
            break  # the one that sent this is as far as it is known
        source = str(before)
    return source


def _address(text: str) -> Address | None:
    match = _WITH_PORT.fullmatch(text)
    try:
        address = ipaddress.ip_address((match["v6"] or match["v4"]) if match else text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
