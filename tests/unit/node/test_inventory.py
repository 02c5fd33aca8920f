"""What nobody knows is an orphan; what a known box or slot owns is not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from atoll.node.inventory import Item, orphans, sweep_nameless

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


@pytest.mark.anyio
async def test_images_that_say_nothing_of_their_sandbox_are_removed_and_listed() -> None:
    removed: list[str] = []
    host: Any = SimpleNamespace(images=SimpleNamespace(nameless=lambda: ["pa1", "pa2"], remove=removed.append))
    assert await sweep_nameless(host) == [Item("image", "pa1"), Item("image", "pa2")]
    assert removed == ["pa1", "pa2"]
