"""The network on paper has no way out."""

from __future__ import annotations

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
