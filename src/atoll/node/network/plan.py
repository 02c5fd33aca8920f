"""The network of a sandbox on paper: addresses, namespaces and rules.

Every sandbox has the same inner address, so that a snapshot fits anywhere; the hardware address is of the slot. Two
namespaces belong to it:

    inner   eth0 10.0.0.2/30, default route to 10.0.0.1; the sandbox's own stack sits on it
    outer   gate 10.0.0.1/30; no other link, no route, no forwarding

The outer one is joined to nothing: not to the host, not to another sandbox. So what the sandbox sends ends there,
unless we listen there. Whatever TCP connection the sandbox opens is redirected to our proxy, and every DNS question to
our server; while the server is away, nobody takes them. The rules drop all the rest, also what is addressed to the
outer namespace itself; answers to connections that we opened come through.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from atoll.node.names import NETNS_FOLDER, HostNames

INNER_ADDRESS = "10.0.0.2"
OUTER_ADDRESS = "10.0.0.1"
PREFIX_BITS = 30
INNER_LINK = "eth0"
OUTER_LINK = "gate"
OUTER_MAC = "02:00:0a:00:00:01"
PROXY_PORT = 15001  # in the outer namespace, where nobody else listens


@dataclass(frozen=True, slots=True)
class Pair:
    """The two namespaces of one slot."""

    slot: str
    inner: str
    outer: str

    @classmethod
    def of(cls, names: HostNames, slot: str) -> Pair:
        return cls(slot, names.netns_inner(slot), names.netns_outer(slot))

    @property
    def inner_path(self) -> str:
        return str(NETNS_FOLDER / self.inner)

    @property
    def outer_path(self) -> str:
        return str(NETNS_FOLDER / self.outer)

    @property
    def inner_mac(self) -> str:
        """Of no other sandbox that lives: programs take it for the name of a computer. A copy has that of its slot."""
        return "02:" + hashlib.sha256(self.inner.encode()).digest()[:5].hex(":")

    def exists(self) -> bool:
        return (NETNS_FOLDER / self.outer).exists()


def rules() -> str:
    """The nftables rules of an outer namespace: TCP and DNS to us, answers in, nothing else, and nothing through."""
    return f"""\
table inet atoll
delete table inet atoll
table inet atoll {{
    chain prerouting {{
        type nat hook prerouting priority dstnat;
        iifname {OUTER_LINK} ip saddr {INNER_ADDRESS} meta l4proto tcp redirect to :{PROXY_PORT}
        iifname {OUTER_LINK} ip saddr {INNER_ADDRESS} udp dport 53 redirect to :53
    }}
    chain input {{
        type filter hook input priority filter; policy drop;
        iif lo accept
        ct state established,related accept
        iifname {OUTER_LINK} ip saddr {INNER_ADDRESS} tcp dport {PROXY_PORT} accept
        iifname {OUTER_LINK} ip saddr {INNER_ADDRESS} udp dport 53 accept
    }}
    chain forward {{
        type filter hook forward priority filter; policy drop;
    }}
}}
"""
