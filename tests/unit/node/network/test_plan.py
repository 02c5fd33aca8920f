"""The network on paper has no way out."""

from __future__ import annotations

from pathlib import Path

from atoll.node.names import HostNames
from atoll.node.network import plan


def test_the_rules_drop_by_default() -> None:
    rules = plan.rules()
    assert rules.count("policy drop") == 2
    assert "masquerade" not in rules
    assert "policy accept" not in rules


def test_what_the_sandbox_opens_ends_at_our_own_sockets() -> None:
    """TCP and questions to DNS are turned to us; there is no other rule that accepts what a sandbox begins."""
    rules = plan.rules()
    assert rules.count("redirect to") == 2
    accepted = [line for line in rules.splitlines() if line.strip().endswith("accept") and "gate" in line]
    assert [line.split("saddr 10.0.0.2 ")[1] for line in accepted] == ["tcp dport 15001 accept", "udp dport 53 accept"]


def test_a_slot_has_a_hardware_address_of_its_own() -> None:
    """One that no maker of hardware has, of one card and not of a group."""
    names = HostNames.of(Path("/data"))
    macs = [plan.Pair.of(names, slot).inner_mac for slot in ("ab12", "ab13")]
    assert len({*macs, plan.OUTER_MAC}) == 3
    assert all(len(bytes.fromhex(mac.replace(":", ""))) == 6 and mac.startswith("02:") for mac in macs)
    assert plan.Pair.of(names, "ab12").inner_mac == macs[0]
