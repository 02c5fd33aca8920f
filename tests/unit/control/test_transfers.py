"""Snapshots as files, over a node in memory: on record first, visible last, and never too many at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from atoll.control.snapshots import SnapshotSpec
from atoll.model import limits
from atoll.model.errors import Conflict, InvalidArgument, LimitExceeded, NotFound
from atoll.model.resources import Resources
from atoll.model.sandbox import SandboxSpec

pytestmark = pytest.mark.anyio


async def exported(world: Any, reference: str, *, memory: bool = True) -> bytes:
    async with world.control.transfers.export(world.me, reference, memory=memory) as chunks:
        return b"".join([chunk async for chunk in chunks])


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 5):
        yield data[start : start + 5]


async def listed(world: Any) -> list[str]:
    return [one.id for one in (await world.control.snapshots.page(world.me, None, None, 10))[0]]


async def test_a_snapshot_goes_out_and_comes_back_under_another_id(world: Any) -> None:
    big = Resources(memory_bytes=3 * 1024**3)
    source, _ = await world.control.sandbox_create(world.me, SandboxSpec(resources=big))
    snapshot = await world.control.snapshots.take(world.me, source.id, SnapshotSpec())
    data = await exported(world, snapshot.id)
    found = await world.control.transfers.import_(world.other, SnapshotSpec(name="mine"), pieces(data))
    assert (found.template, found.sandbox_id, found.has_memory) == (source.template, "", True)
    assert found.resources.memory_bytes == big.memory_bytes
    assert await world.control.snapshots.find(world.other, "mine") == found
    with pytest.raises(NotFound):
        await world.control.snapshots.find(world.me, "mine")
    disk = await world.control.transfers.import_(world.other, SnapshotSpec(memory=False), pieces(data))
    assert (disk.has_memory, disk.memory_bytes) == (False, 0)
    assert b" 0 " in await exported(world, snapshot.id, memory=False)


async def test_a_file_that_is_refused_leaves_no_record_and_no_image(world: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await world.control.transfers.import_(world.me, SnapshotSpec(name="x"), pieces(b"something else"))
    assert caught.value.code == "snapshot_foreign"
    assert await listed(world) == []
    assert world.node.image_ids() == frozenset()


async def test_a_caller_who_leaves_in_the_middle_leaves_nothing(world: Any) -> None:
    came = anyio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"fake snapshot"
        came.set()
        await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.control.transfers.import_, world.me, SnapshotSpec(name="x"), endless())
        await came.wait()
        assert await listed(world) == [], "what is on its way is not shown"
        with pytest.raises(Conflict):
            await world.control.transfers.import_(world.me, SnapshotSpec(name="x"), pieces(b""))
        tasks.cancel_scope.cancel()
    assert await listed(world) == []
    source, _ = await world.control.sandbox_create(world.me, SandboxSpec())
    await world.control.snapshots.take(world.me, source.id, SnapshotSpec(name="x"))


async def test_there_are_never_too_many_at_once(world: Any) -> None:
    source, _ = await world.control.sandbox_create(world.me, SandboxSpec())
    snapshot = await world.control.snapshots.take(world.me, source.id, SnapshotSpec())
    open_ = [
        world.control.transfers.export(world.me, snapshot.id, memory=True) for _ in range(limits.SNAPSHOT_TRANSFERS_MAX)
    ]
    for one in open_:
        await one.__aenter__()
    with pytest.raises(LimitExceeded) as caught:
        await exported(world, snapshot.id)
    assert caught.value.code == "too_many_transfers"
    for one in open_:
        await one.__aexit__(None, None, None)
    assert await exported(world, snapshot.id)


async def test_names_are_checked_before_a_byte_is_read(world: Any) -> None:
    for name in ("No", "code"):
        with pytest.raises((InvalidArgument, Conflict)):
            await world.control.transfers.import_(world.me, SnapshotSpec(name=name), pieces(b"fake"))
    with pytest.raises(NotFound):
        await exported(world, "nothing")
