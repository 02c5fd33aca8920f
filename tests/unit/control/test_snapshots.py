"""Snapshots and forks, over a node in memory."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from atoll.control.snapshots import SnapshotSpec
from atoll.control.store import snapshots as rows
from atoll.model import ids
from atoll.model.errors import Conflict, InvalidArgument, NotFound, OutOfSpace, Unavailable
from atoll.model.lifecycle import State
from atoll.model.resources import Resources
from atoll.model.sandbox import Budget, DeadlineAction, SandboxSpec
from atoll.model.snapshot import Snapshot, SnapshotState
from atoll.testing.clock import VirtualClock
from atoll.testing.nodes import FakeNode

pytestmark = pytest.mark.anyio


async def test_a_snapshot_stands_where_a_template_does(world: Any) -> None:
    big = Resources(memory_bytes=2 * 1024**3, cpu=2.0)
    source, _ = await world.control.sandbox_create(world.me, SandboxSpec(resources=big))
    snapshot = await world.control.snapshots.take(world.me, source.id, SnapshotSpec(name="ready"))
    for reference in (snapshot.id, "ready"):
        spec = SandboxSpec(template=reference, resources=Resources(cpu=0.5), chosen=frozenset({"cpu"}))
        made, _ = await world.control.sandbox_create(world.me, spec)
        assert (made.template, made.snapshot_id) == ("code", snapshot.id)
        assert (made.resources.memory_bytes, made.resources.cpu) == (2 * 1024**3, 0.5)
        assert world.node.orders[-1].image == snapshot.id
    for reference in (snapshot.id, "ready"):
        with pytest.raises(NotFound):
            await world.control.sandbox_create(world.other, SandboxSpec(template=reference))
        with pytest.raises(NotFound):
            await world.control.snapshots.find(world.other, reference)


async def test_the_space_of_anothers_snapshot_is_not_told(world: Any) -> None:
    source, _ = await world.control.sandbox_create(world.me, SandboxSpec())
    snapshot = await world.control.snapshots.take(world.me, source.id, SnapshotSpec(name="ready"))
    for reference in (snapshot.id, "ready"):
        assert (await world.control.snapshots.space(world.me, reference)).own_bytes == 1000
        with pytest.raises(NotFound):
            await world.control.snapshots.space(world.other, reference)


async def test_a_snapshot_that_fails_leaves_nothing(world: Any) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec())
    world.node.image_errors = [OutOfSpace("full")]
    with pytest.raises(OutOfSpace):
        await world.control.snapshots.take(world.me, sandbox.id, SnapshotSpec(name="x"))
    assert (await world.control.snapshots.page(world.me, None, None, 10)) == ([], None)
    await world.control.snapshots.take(world.me, sandbox.id, SnapshotSpec(name="x"))


async def test_names_bounds_and_keep_rules(world: Any) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec())
    take = world.control.snapshots.take
    await take(world.me, sandbox.id, SnapshotSpec(name="kept"))
    with pytest.raises(Conflict):
        await take(world.me, sandbox.id, SnapshotSpec(name="kept"))
    with pytest.raises(Conflict):
        await take(world.me, sandbox.id, SnapshotSpec(name="code"))
    for bad in (SnapshotSpec(name="No"), SnapshotSpec(expires_s=0), SnapshotSpec(keep_last=0)):
        with pytest.raises(InvalidArgument):
            await take(world.me, sandbox.id, bad)
    for _ in range(4):
        await world.clock.advance(1)
        last = await take(world.me, sandbox.id, SnapshotSpec(keep_last=2))
    items, _ = await world.control.snapshots.page(world.me, sandbox.id, None, 10)
    assert [item.name for item in items] == [None, None, "kept"]
    assert items[0].id == last.id
    assert len(world.node.images) == 3


async def test_a_name_goes_over_to_the_snapshot_that_takes_it(world: Any) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec())
    take, find = world.control.snapshots.take, world.control.snapshots.find
    first = await take(world.me, sandbox.id, SnapshotSpec(name="state", takes_name=True))
    second = await take(world.me, sandbox.id, SnapshotSpec(name="state", takes_name=True))
    assert (first.name, second.name) == ("state", "state")
    assert (await find(world.me, "state")).id == second.id
    assert (await find(world.me, first.id)).name is None
    world.node.image_errors = [OutOfSpace("full")]
    with pytest.raises(OutOfSpace):
        await take(world.me, sandbox.id, SnapshotSpec(name="state", takes_name=True))
    assert (await find(world.me, "state")).id == second.id  # until another is whole


async def test_a_name_is_not_taken_from_a_snapshot_in_the_making_nor_from_others(world: Any) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec())
    theirs, _ = await world.control.sandbox_create(world.other, SandboxSpec())
    take, find = world.control.snapshots.take, world.control.snapshots.find
    await take(world.other, theirs.id, SnapshotSpec(name="state"))
    store, now = world.control.snapshots._store, world.clock.now()
    state = SnapshotState.MAKING
    making = Snapshot(ids.mint(ids.SNAPSHOT, 1, bytes(16)), "state", sandbox.id, "code", Resources(), True, state, now)
    await store.write(rows.add, rows.SnapshotRecord(world.me.owner, making))
    with pytest.raises(Conflict):
        await take(world.me, sandbox.id, SnapshotSpec(name="state", takes_name=True))
    await store.write(rows.remove, making.id)
    mine = await take(world.me, sandbox.id, SnapshotSpec(name="state", takes_name=True))
    assert (await find(world.me, "state")).id == mine.id
    assert (await find(world.other, "state")).id != mine.id
    assert len((await world.control.snapshots.page(world.me, None, None, 10))[0]) == 1


async def test_pages_follow_each_other(world: Any) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec())
    made = [(await world.control.snapshots.take(world.me, sandbox.id, SnapshotSpec())).id for _ in range(5)]
    seen: list[str] = []
    cursor = None
    while True:
        items, cursor = await world.control.snapshots.page(world.me, None, cursor, 2)
        seen += [item.id for item in items]
        if cursor is None:
            break
    assert sorted(seen) == sorted(made)
    assert len(seen) == 5


async def test_expiry(world: Any) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=1000))
    await world.control.snapshots.take(world.me, sandbox.id, SnapshotSpec(expires_s=50))
    await world.clock.advance(51)
    with anyio.fail_after(5):
        while world.node.images:
            await anyio.sleep(0.005)


async def test_one_fork_that_fails_does_not_spoil_the_others(world: Any) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(metadata={"run": "7"}))
    world.node.create_errors = [Unavailable("no memory")]
    made = await world.control.snapshots.fork(world.me, sandbox.id, 3, None)
    good = [one.sandbox for one in made if one.sandbox]
    assert len(good) == 2
    assert [type(one.error) for one in made if one.error] == [Unavailable]
    assert all(one.metadata == {"run": "7"} and one.state is State.RUNNING for one in good)
    assert not world.node.images, "what they were made from is not kept"
    assert len(world.node.passing) == 1, "nor is it waited for until it is on the disk"


async def test_a_fork_has_the_bounds_of_the_original(world: Any) -> None:
    """Each has the same budget for itself, and what happens when it is spent is the same."""
    bounds: dict[str, Any] = {
        "budget": Budget(seconds=100),
        "on_budget": DeadlineAction.PAUSE,
        "timeout_s": 1000,
        "idle_timeout_s": 50,
    }
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(**bounds))
    await world.clock.advance(10)
    for fork in await world.control.snapshots.fork(world.me, sandbox.id, 2, None):
        assert fork.sandbox is not None
        assert {name: getattr(fork.sandbox, name) for name in bounds} == bounds


async def test_a_restart_removes_what_is_half_made_on_either_side(open_world: Any) -> None:
    node, clock = FakeNode(), VirtualClock()
    async with open_world(node, clock) as world:
        sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec())
        kept = await world.control.snapshots.take(world.me, sandbox.id, SnapshotSpec())
    node.images.add("sn" + "0" * 36)
    node.volumes.add("vo" + "0" * 36)
    async with open_world(node, clock) as world:
        assert node.images == {kept.id}
        assert node.volumes == set()


async def test_volumes_are_their_owners_and_not_deleted_while_in_use(world: Any) -> None:
    from atoll.model.volume import VolumeMount

    volume = await world.control.volumes.create(world.me, "data", None)
    spec = SandboxSpec(volumes=(VolumeMount("data", "/data"),))
    sandbox, _ = await world.control.sandbox_create(world.me, spec)
    assert world.node.orders[-1].volumes == (VolumeMount(volume.id, "/data"),)
    with pytest.raises(Conflict):
        await world.control.volumes.delete(world.me, "data")
    with pytest.raises(NotFound):
        await world.control.volumes.find(world.other, "data")
    with pytest.raises(NotFound):
        await world.control.sandbox_create(world.other, spec)
    await world.control.sandbox_kill(world.me, sandbox.id)
    await world.control.volumes.delete(world.me, "data")
    assert not world.node.volumes


async def test_one_that_cannot_be_taken_off_the_record_does_not_keep_its_name(world: Any) -> None:
    """The disk is full, so neither the image nor the database can be written; then there is room again."""
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec())
    snapshots = world.control.snapshots
    world.node.image_errors = [OutOfSpace("full")]
    discard = snapshots.discard

    async def refused(_snapshot_id: str) -> None:
        raise Unavailable("the database does not answer", code="database_unavailable")

    snapshots.discard = refused
    with pytest.raises(OutOfSpace):
        await snapshots.take(world.me, sandbox.id, SnapshotSpec(name="x"))
    assert (await snapshots.page(world.me, None, None, 10)) == ([], None)
    snapshots.discard = discard
    assert (await snapshots.take(world.me, sandbox.id, SnapshotSpec(name="x"))).name == "x"


async def test_forks_that_were_made_are_told_of_though_their_image_cannot_be_taken_off_the_record(world: Any) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec())
    snapshots = world.control.snapshots
    discard = snapshots.discard

    async def refused(_snapshot_id: str) -> None:
        raise Unavailable("the database does not answer", code="database_unavailable")

    snapshots.discard = refused
    (fork,) = await snapshots.fork(world.me, sandbox.id, 1, None)
    assert fork.sandbox is not None
    snapshots.discard = discard
    await snapshots.take(world.me, sandbox.id, SnapshotSpec())
    assert len(world.node.image_ids()) == 1, "what the fork was made from is gone"


async def test_a_file_is_put_back_also_where_the_sandbox_falls_asleep_in_that_moment(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec())
    snapshot = await world.control.snapshots.take(world.me, sandbox.id, SnapshotSpec())
    restore = world.node.image_file_restore

    async def asleep_first(*arguments: str) -> int:
        if not world.node.frozen and not tried:
            tried.append(1)
            await world.control.states.standby(world.me, sandbox.id)
            raise Conflict("the sandbox is in standby", code="asleep")
        assert not world.node.frozen
        return int(await restore(*arguments))

    tried: list[int] = []
    monkeypatch.setattr(world.node, "image_file_restore", asleep_first)
    assert await world.control.snapshots.file_restore(world.me, snapshot.id, sandbox.id, "/a")
    assert (await world.control.sandbox_get(world.me, sandbox.id)).state is State.RUNNING


@pytest.mark.parametrize("freezes", [True, False], ids=["stands still", "goes on"])
@pytest.mark.parametrize("works", [True, False], ids=["taken", "failed"])
async def test_one_in_standby_is_so_again_after_a_snapshot_or_says_that_it_runs(
    world: Any, monkeypatch: pytest.MonkeyPatch, works: bool, freezes: bool
) -> None:
    """It had to go on for a moment; that it does not stand still again is no fault of the snapshot."""
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=1000))
    await world.control.states.standby(world.me, sandbox.id)
    take = world.node.image_take

    async def take_and_go_on(*arguments: Any, **options: Any) -> Any:
        world.node.frozen.clear()
        if not works:
            raise OutOfSpace("full")
        return await take(*arguments, **options)

    async def refused(_sandbox_id: str) -> None:
        raise Unavailable("it does not stand still")

    monkeypatch.setattr(world.node, "image_take", take_and_go_on)
    if not freezes:
        monkeypatch.setattr(world.node, "sandbox_standby", refused)
    if works:
        assert (await world.control.snapshots.take(world.me, sandbox.id, SnapshotSpec())).has_memory
    else:
        with pytest.raises(OutOfSpace):
            await world.control.snapshots.take(world.me, sandbox.id, SnapshotSpec())
    found = await world.control.sandbox_get(world.me, sandbox.id)
    assert (found.state, bool(world.node.frozen)) == ((State.STANDBY, True) if freezes else (State.RUNNING, False))
    assert found.deadline_at == sandbox.deadline_at
