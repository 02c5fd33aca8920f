"""Snapshots of volumes and the files of volumes, over a node in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from atoll.model import limits
from atoll.model.errors import Conflict, InvalidArgument, LimitExceeded, NotFound
from atoll.model.sandbox import SandboxSpec
from atoll.model.volume import VolumeMount
from atoll.testing.clock import VirtualClock
from atoll.testing.nodes import FakeNode
from atoll.wire.volumes import Ownership

pytestmark = pytest.mark.anyio


async def chunks(*data: bytes) -> AsyncIterator[bytes]:
    for one in data:
        yield one


async def test_a_volume_goes_back_only_while_nobody_has_it(world: Any) -> None:
    volumes = world.control.volumes
    volume = await volumes.create(world.me, "data", None)
    kept = await volumes.snapshots.create(world.me, volume, "before")
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(volumes=(VolumeMount("data", "/data"),)))
    with pytest.raises(Conflict) as caught:
        await volumes.snapshots.rollback(world.me, volume, "before")
    assert caught.value.code == "volume_in_use"
    await world.control.sandbox_kill(world.me, sandbox.id)
    assert (await volumes.snapshots.rollback(world.me, volume, kept.id)).id == kept.id
    async with world.node.volume_close(volume.id):
        with pytest.raises(Conflict) as caught:
            await volumes.snapshots.rollback(world.me, volume, kept.id)
    assert caught.value.code == "volume_busy"


async def test_snapshots_belong_to_their_volume_and_go_with_it(world: Any) -> None:
    volumes = world.control.volumes
    volume = await volumes.create(world.me, "data", None)
    other = await volumes.create(world.me, "other", None)
    await volumes.snapshots.create(world.me, volume, "one")
    await volumes.snapshots.create(world.me, other, "one")
    with pytest.raises(Conflict):
        await volumes.snapshots.create(world.me, volume, "one")
    assert len(world.node.volumes) == 4, "what could not be put on record is not kept"
    with pytest.raises(InvalidArgument):
        await volumes.create(world.me, "third", None, None, "one")
    clone = await volumes.create(world.me, "third", None, "data", "one")
    await volumes.delete(world.me, "data")
    assert len(world.node.volumes) == 3
    with pytest.raises(NotFound):
        await volumes.snapshots.find(volume, "one")
    assert (await volumes.snapshots.list(other))[0].name == "one"
    assert (await volumes.find(world.me, "third")).id == clone.id


async def test_there_is_a_bound(world: Any) -> None:
    volumes = world.control.volumes
    volume = await volumes.create(world.me, "data", None)
    for _ in range(limits.VOLUME_SNAPSHOTS_MAX):
        await volumes.snapshots.create(world.me, volume, None)
    with pytest.raises(LimitExceeded):
        await volumes.snapshots.create(world.me, volume, None)
    assert len(await volumes.snapshots.list(volume)) == limits.VOLUME_SNAPSHOTS_MAX


async def test_what_a_killed_server_left_goes_and_what_is_on_record_stays(open_world: Any) -> None:
    node, clock = FakeNode(), VirtualClock()
    async with open_world(node, clock) as world:
        volume = await world.control.volumes.create(world.me, "data", None)
        kept = await world.control.volumes.snapshots.create(world.me, volume, None)
        node.volumes |= {"vs" + "0" * 36, ".rollback-1"}
    async with open_world(node, clock):
        assert node.volumes == {volume.id, kept.id}


async def test_files_are_their_owners(world: Any) -> None:
    await world.control.volumes.create(world.me, "data", None)
    files = await world.control.volumes.files(world.me, "data")
    written = await files.write("/a/b", chunks(b"1", b"2"), Ownership())
    assert (written.path, written.size) == ("/a/b", 2)
    async with files.read("a/b", 1) as reading:
        assert [piece async for piece in reading] == [b"2"]
    with pytest.raises(NotFound) as caught:
        await world.control.volumes.files(world.other, "data")
    assert caught.value.code == "volume_not_found"
    for wrong in (Ownership(uid=-1), Ownership(gid=2**32 - 1), Ownership(mode=0o4755)):
        with pytest.raises(InvalidArgument):
            await files.change("/a/b", wrong)
    with pytest.raises(InvalidArgument):
        await files.list("/", 0)
    with pytest.raises(NotFound):
        await files.remove("/nothing")
    await files.remove("/nothing", missing_ok=True)


async def test_an_upload_that_is_given_up_leaves_nothing(world: Any) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise InvalidArgument("gone")

    await world.control.volumes.create(world.me, "data", None)
    files = await world.control.volumes.files(world.me, "data")
    with pytest.raises(InvalidArgument):
        await files.write("/a", broken(), Ownership())
    assert (await files.list("/")).items == ()


async def test_transfers_at_once_have_a_bound(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VOLUME_TRANSFERS_MAX", 1)
    await world.control.volumes.create(world.me, "data", None)
    files = await world.control.volumes.files(world.me, "data")
    await files.write("/a", chunks(b"1"), Ownership())
    async with files.read("/a"):
        with pytest.raises(LimitExceeded):
            await files.write("/b", chunks(b"1"), Ownership())
    await files.write("/b", chunks(b"1"), Ownership())
