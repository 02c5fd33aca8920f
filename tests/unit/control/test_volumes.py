"""Volumes over a node in memory: those whose disk is lost, and those that go while somebody is at work on them."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from atoll.model.errors import Conflict, NotFound
from atoll.model.sandbox import SandboxSpec
from atoll.model.volume import VolumeMount
from atoll.testing.clock import VirtualClock
from atoll.testing.nodes import FakeNode
from atoll.wire.node import SandboxOrder

pytestmark = pytest.mark.anyio


async def test_one_whose_disk_is_lost_is_told_of_shown_and_deleted(open_world: Any) -> None:
    """As after the restore of a backup on another machine."""
    node, clock = FakeNode(), VirtualClock()
    async with open_world(node, clock) as world:
        lost = await world.control.volumes.create(world.me, "lost", None)
        await world.control.volumes.create(world.me, "whole", None)
        kept = await world.control.volumes.snapshots.create(world.me, lost, None)
    node.volumes -= {lost.id, kept.id}
    with capture_logs() as logs:
        async with open_world(node, clock) as world:
            volumes = world.control.volumes
            assert [one.name for one in await volumes.list(world.me)] == ["lost", "whole"]
            assert (await volumes.find(world.me, "lost")).used_bytes == 0
            with pytest.raises(NotFound):
                await (await volumes.files(world.me, "lost")).list("/")
            with pytest.raises(Conflict):
                await world.control.sandbox_create(world.me, SandboxSpec(volumes=(VolumeMount("lost", "/data"),)))
            await volumes.delete(world.me, "lost")
            assert [one.name for one in await volumes.list(world.me)] == ["whole"]
    assert {entry["volume_id"] for entry in logs if entry["event"] == "volume_lost"} == {lost.id, kept.id}


async def test_a_list_leaves_out_one_that_goes_meanwhile(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    volumes = world.control.volumes
    gone = await volumes.create(world.me, "gone", None)
    await volumes.create(world.me, "stays", None)
    used_bytes = world.node.volume_used_bytes

    async def used_bytes_later(volume_id: str) -> int:
        if volume_id == gone.id:
            await volumes.discard(gone.id)
        return int(await used_bytes(volume_id))

    monkeypatch.setattr(world.node, "volume_used_bytes", used_bytes_later)
    assert [one.name for one in await volumes.list(world.me)] == ["stays"]


async def test_no_sandbox_is_given_one_that_is_being_deleted(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its create may have looked the volume up before, and goes on record after; the node is what decides."""
    volume = await world.control.volumes.create(world.me, "data", None)
    order = SandboxOrder("sb", "base", SandboxSpec().resources, volumes=(VolumeMount(volume.id, "/data"),))
    remove = world.node.volume_remove
    refused: list[str] = []

    async def remove_meanwhile(volume_id: str) -> None:
        with pytest.raises(Conflict) as caught:
            await world.node.sandbox_create(order)
        refused.append(caught.value.code)
        await remove(volume_id)

    monkeypatch.setattr(world.node, "volume_remove", remove_meanwhile)
    await world.control.volumes.delete(world.me, "data")
    assert refused == ["volume_busy"]
    with pytest.raises(Conflict) as caught:
        await world.node.sandbox_create(order)
    assert caught.value.code == "volume_not_found"
    async with world.node.volume_close(volume.id):
        pass
