"""The network on paper has no way out."""

from __future__ import annotations

from pathlib import Path

from atoll.model import limits
from atoll.node.names import HostNames
from atoll.node.network import plan


def test_the_rules_drop_by_default() -> None:
    rules = plan.rules()
    assert rules.count("policy drop") == 3
    assert "masquerade" not in rules
    assert "policy accept" not in rules


def test_what_the_sandbox_opens_ends_at_our_own_sockets() -> None:
    """TCP and questions to DNS are turned to us; there is no other rule that accepts what a sandbox begins."""
    rules = plan.rules()
    assert rules.count("redirect to") == 2
    accepted = [line for line in chain("input") if line.endswith("accept") and "gate" in line]
    assert [line.split("saddr 10.0.0.2 ")[1] for line in accepted] == ["tcp dport 15001 accept", "udp dport 53 accept"]


def test_what_is_not_for_us_and_what_is_too_much_is_dropped_before_the_kernel_remembers_it() -> None:
    """Well above the rates that the proxy and the server of DNS have themselves; what the sandbox answers is no SYN."""
    inside, dropped = "iifname gate ip saddr 10.0.0.2", "packets counter name dropped drop"
    assert chain("early") == [
        "type filter hook prerouting priority raw; policy drop;",
        "iif lo accept",
        f"{inside} tcp flags & (fin|syn|rst|ack) == syn limit rate over 500/second burst 2000 {dropped}",
        f"{inside} meta l4proto tcp accept",
        f"{inside} udp dport 53 limit rate over 400/second burst 400 {dropped}",
        f"{inside} udp dport 53 accept",
        "counter name dropped",
    ]
    assert limits.NETWORK_SYNS_PER_S >= 2 * limits.EGRESS_TAKEN_PER_S
    assert limits.NETWORK_SYNS_AT_ONCE >= 2 * limits.EGRESS_TAKEN_AT_ONCE
    assert limits.NETWORK_QUESTIONS_PER_S >= 2 * limits.DNS_QUERIES_PER_S


def chain(name: str) -> list[str]:
    """The lines of one chain."""
    text = plan.rules().partition(f"chain {name} {{")[2].partition("}")[0]
    return [line.strip() for line in text.splitlines() if line.strip()]


def test_a_slot_has_a_hardware_address_of_its_own() -> None:
    """One that no maker of hardware has, of one card and not of a group."""
    names = HostNames.of(Path("/data"))
    macs = [plan.Pair.of(names, slot).inner_mac for slot in ("ab12", "ab13")]
    assert len({*macs, plan.OUTER_MAC}) == 3
    assert all(len(bytes.fromhex(mac.replace(":", ""))) == 6 and mac.startswith("02:") for mac in macs)
    assert plan.Pair.of(names, "ab12").inner_mac == macs[0]
