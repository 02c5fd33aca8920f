"""The network of a sandbox on paper: addresses, namespaces and rules.

Every sandbox has the same inner address, so that a snapshot fits anywhere; the hardware address is of the slot. Two
namespaces belong to it:

    inner   eth0 10.0.0.2/30, default route to 10.0.0.1; the sandbox's own stack sits on it
    outer   gate 10.0.0.1/30; no other link, no route, no forwarding

The outer one is joined to nothing: not to the host, not to another sandbox. So what the sandbox sends ends there,
unless we listen there. Whatever TCP connection the sandbox opens is redirected to our proxy, and every DNS question to
our server; while the server is away, nobody takes them. The rules drop all the rest, also what is addressed to the
outer namespace itself; answers to connections that we opened come through.

The kernel remembers what it redirects, a few hundred bytes for each, in a table whose room all sandboxes share. So the
rest is dropped before that, new connections and questions beyond a rate, too, and a connection that gets no further
than its first packet is soon forgotten. What belongs to no connection is let through: it is told so at once.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from atoll.model import limits
from atoll.node.names import NETNS_FOLDER, HostNames

INNER_ADDRESS = "10.0.0.2"
OUTER_ADDRESS = "10.0.0.1"
PREFIX_BITS = 30
INNER_LINK = "eth0"
OUTER_LINK = "gate"
OUTER_MAC = "02:00:0a:00:00:01"
PROXY_PORT = 15001  # in the outer namespace, where nobody else listens
TABLE, DROPPED = "atoll", "dropped"  # the rules, and the counter of what they drop first
FORGOTTEN_AFTER = "net/netfilter/nf_conntrack_tcp_timeout_syn_sent"
"""Where a namespace is told for how many seconds it remembers a connection that got no answer."""


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
    inside = f"iifname {OUTER_LINK} ip saddr {INNER_ADDRESS}"
    syns = _rate(limits.NETWORK_SYNS_PER_S, limits.NETWORK_SYNS_AT_ONCE)
    questions = _rate(limits.NETWORK_QUESTIONS_PER_S, limits.NETWORK_QUESTIONS_PER_S)
    return f"""\
table inet {TABLE}
delete table inet {TABLE}
table inet {TABLE} {{
    counter {DROPPED} {{
    }}
    chain early {{
        type filter hook prerouting priority raw; policy drop;
        iif lo accept
        {inside} tcp flags & (fin|syn|rst|ack) == syn {syns} counter name {DROPPED} drop
        {inside} meta l4proto tcp accept
        {inside} udp dport 53 {questions} counter name {DROPPED} drop
        {inside} udp dport 53 accept
        counter name {DROPPED}
    }}
    chain prerouting {{
        type nat hook prerouting priority dstnat;
        {inside} meta l4proto tcp redirect to :{PROXY_PORT}
        {inside} udp dport 53 redirect to :53
    }}
    chain input {{
        type filter hook input priority filter; policy drop;
        iif lo accept
        ct state established,related accept
        {inside} tcp dport {PROXY_PORT} accept
        {inside} udp dport 53 accept
    }}
    chain forward {{
        type filter hook forward priority filter; policy drop;
    }}
}}
"""


def _rate(per_s: int, at_once: int) -> str:
    return f"limit rate over {per_s}/second burst {at_once} packets"
