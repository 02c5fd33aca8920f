"""What nobody knows is an orphan; what a known box or slot owns is not."""

from __future__ import annotations

from atoll.node.inventory import Item, orphans

ITEMS = [
    Item("cgroup", "atoll-x/bxknown", "bxknown"),
    Item("cgroup", "atoll-x/bxlost", "bxlost"),
    Item("netns", "atoll-x-ab-in", "ab"),
    Item("netns", "atoll-x-cd-in", "cd"),
    Item("mount", "/data/pool"),
]


def test_orphans_are_what_no_box_and_no_slot_claims() -> None:
    found = orphans(ITEMS, boxes={"bxknown"}, slots={"ab"})
    assert [item.name for item in found] == ["atoll-x/bxlost", "atoll-x-cd-in"]


def test_the_servers_own_mount_belongs_to_no_box() -> None:
    assert Item("mount", "/data/pool") not in orphans(ITEMS, boxes=(), slots=())
