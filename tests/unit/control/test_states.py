"""Sleep and waking, over a node in memory: who wins, what an error leaves, and what a restart finds."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from atoll.control.reconcile import Note, settled
from atoll.control.snapshots import SnapshotSpec
from atoll.model import limits
from atoll.model.errors import Conflict, LimitExceeded, OutOfSpace, Unavailable
from atoll.model.lifecycle import EndReason, SleepReason, State, Trigger
from atoll.model.sandbox import Budget, DeadlineAction, Sandbox, SandboxSpec
from atoll.testing.clock import VirtualClock
from atoll.testing.nodes import FakeNode

pytestmark = pytest.mark.anyio


async def make(world: Any, **options: Any) -> Sandbox:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(**options))
    assert isinstance(sandbox, Sandbox)
    return sandbox


async def state_of(world: Any, sandbox: Sandbox) -> State:
    found = await world.control.sandbox_get(world.me, sandbox.id)
    assert isinstance(found.state, State)
    return found.state


async def wait_state(world: Any, sandbox: Sandbox, state: State) -> None:
    with anyio.fail_after(30):  # an error that is logged on the way is drawn with all its frames, which takes a second
        while await state_of(world, sandbox) is not state:
            await anyio.sleep(0.005)


async def test_pause_and_resume_are_idempotent_and_move_the_deadline(world: Any) -> None:
    sandbox = await make(world, timeout_s=100)
    for _ in range(2):
        paused = await world.control.states.pause(world.me, sandbox.id)
        assert (paused.state, paused.sleep_reason) == (State.PAUSED, SleepReason.ASKED)
    assert world.node.guests == {}
    await world.clock.advance(1000)
    assert await state_of(world, sandbox) is State.PAUSED, "a paused sandbox has no deadline"
    resumed = await world.control.states.resume(world.me, sandbox.id)
    assert resumed.state is State.RUNNING
    assert (resumed.deadline_at - world.clock.now()).total_seconds() == 100
    assert await world.control.states.resume(world.me, sandbox.id) == resumed
    assert len(world.node.resumed) == 1


async def test_two_who_resume_at_once_get_one(world: Any) -> None:
    sandbox = await make(world)
    await world.control.states.pause(world.me, sandbox.id)
    world.node.resume_s = 0.05
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(world.control.states.resume, world.me, sandbox.id)
    assert len(world.node.resumed) == 1


async def test_a_resume_during_a_pause_waits_for_it(world: Any) -> None:
    sandbox = await make(world)
    world.node.pause_s = 0.05
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.control.states.pause, world.me, sandbox.id)
        await wait_state(world, sandbox, State.PAUSING)
        assert (await world.control.states.resume(world.me, sandbox.id)).state is State.RUNNING
    assert len(world.node.resumed) == 1


async def test_a_call_during_a_pause_does_not_undo_it(world: Any) -> None:
    """It waits for the pause, and finds a sandbox that may not wake by a call."""
    sandbox = await make(world)
    world.node.pause_s = 0.05
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.control.states.pause, world.me, sandbox.id)
        await wait_state(world, sandbox, State.PAUSING)
        with pytest.raises(Conflict) as refused:
            await world.control.guest(world.me, sandbox.id)
    assert refused.value.code == "not_running"
    assert await state_of(world, sandbox) is State.PAUSED
    assert world.node.resumed == []


async def test_a_pause_that_fails_leaves_it_running(world: Any) -> None:
    sandbox = await make(world)
    world.node.pause_errors = [OutOfSpace("full")]
    with pytest.raises(OutOfSpace):
        await world.control.states.pause(world.me, sandbox.id)
    assert await state_of(world, sandbox) is State.RUNNING


async def test_a_resume_that_fails_leaves_it_paused(world: Any) -> None:
    sandbox = await make(world)
    await world.control.states.pause(world.me, sandbox.id)
    world.node.resume_errors = [Unavailable("no memory")]
    with pytest.raises(Unavailable):
        await world.control.states.resume(world.me, sandbox.id)
    assert await state_of(world, sandbox) is State.PAUSED
    await world.control.sandbox_kill(world.me, sandbox.id)
    assert world.node.paused == {}


@pytest.mark.parametrize("verb", ["pause", "resume"])
@pytest.mark.parametrize("works", [True, False], ids=["done", "failed"])
async def test_a_record_that_could_not_be_written_is_caught_up_with(
    world: Any, monkeypatch: pytest.MonkeyPatch, verb: str, works: bool
) -> None:
    """The disk is full at the moment at which it is paused, awake again, or neither: it must not stay in between."""
    monkeypatch.setattr(limits, "LOOP_RETRY_S", 0)
    sandbox = await make(world)
    states, ledger = world.control.states, world.control.states._ledger
    if verb == "resume":
        await states.pause(world.me, sandbox.id)
    if not works:
        setattr(world.node, f"{verb}_errors", [OutOfSpace("full")])
    advance, full = ledger.advance, [True, True, True]

    async def advance_with_luck(sandbox_id: str, note: Note, **options: Any) -> Any:
        if note.trigger not in (Trigger.PAUSE_ASKED, Trigger.RESUME_ASKED) and full:
            full.pop()
            raise Unavailable("the database does not answer", code="database_unavailable")
        return await advance(sandbox_id, note, **options)

    monkeypatch.setattr(ledger, "advance", advance_with_luck)
    with pytest.raises(Unavailable if works else OutOfSpace):
        await getattr(states, verb)(world.me, sandbox.id)
    ends = (State.PAUSED, State.RUNNING) if verb == "pause" else (State.RUNNING, State.PAUSED)
    await wait_state(world, sandbox, ends[0] if works else ends[1])
    assert (await states.resume(world.me, sandbox.id)).state is State.RUNNING
    assert (await states.pause(world.me, sandbox.id)).state is State.PAUSED


@pytest.mark.parametrize("verb", ["pause", "resume"])
async def test_a_wish_that_was_written_down_though_that_failed_is_caught_up_with(
    world: Any, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """A full disk may tell of an error after the last byte was written: on record it is between two states."""
    monkeypatch.setattr(limits, "LOOP_RETRY_S", 0)
    sandbox = await make(world)
    states, ledger = world.control.states, world.control.states._ledger
    if verb == "resume":
        await states.pause(world.me, sandbox.id)
    before = await state_of(world, sandbox)
    advance, full = ledger.advance, [True]

    async def advance_and_fail(sandbox_id: str, note: Note, **options: Any) -> Any:
        known = await advance(sandbox_id, note, **options)
        if full:
            full.pop()
            raise Unavailable("the database does not answer", code="database_unavailable")
        return known

    monkeypatch.setattr(ledger, "advance", advance_and_fail)
    with pytest.raises(Unavailable):
        await getattr(states, verb)(world.me, sandbox.id)
    await wait_state(world, sandbox, before)
    await getattr(states, verb)(world.me, sandbox.id)
    assert await state_of(world, sandbox) is not before


async def test_one_whose_last_use_cannot_be_counted_is_not_left_half_paused(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = await make(world)
    states = world.control.states

    async def full(_sandbox_id: str) -> None:
        raise Unavailable("the database does not answer", code="database_unavailable")

    with monkeypatch.context() as patched:
        patched.setattr(states._metering, "last", full)
        with pytest.raises(Unavailable):
            await states.pause(world.me, sandbox.id)
    assert await state_of(world, sandbox) is State.RUNNING
    assert (await states.pause(world.me, sandbox.id)).state is State.PAUSED


async def test_one_whose_standby_cannot_be_written_down_runs_on(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = await make(world)
    states, ledger = world.control.states, world.control.states._ledger

    async def full(*_arguments: Any, **_options: Any) -> Any:
        raise Unavailable("the database does not answer", code="database_unavailable")

    with monkeypatch.context() as patched:
        patched.setattr(ledger, "advance", full)
        with pytest.raises(Unavailable):
            await states.standby(world.me, sandbox.id)
    assert await state_of(world, sandbox) is State.RUNNING
    assert world.node.frozen == set()
    assert (await states.standby(world.me, sandbox.id)).state is State.STANDBY


async def test_a_kill_stops_a_resume(world: Any) -> None:
    sandbox = await make(world)
    await world.control.states.pause(world.me, sandbox.id)
    world.node.resume_s = 60
    async with anyio.create_task_group() as tasks:

        async def resume() -> None:
            with pytest.raises(Conflict):
                await world.control.states.resume(world.me, sandbox.id)

        tasks.start_soon(resume)
        await wait_state(world, sandbox, State.RESUMING)
        killed = await world.control.sandbox_kill(world.me, sandbox.id)
    assert (killed.state, killed.end_reason) == (State.KILLED, EndReason.KILLED_BY_USER)
    assert not world.node.guests
    assert not world.node.paused


async def test_a_call_wakes_from_standby_always_and_from_a_pause_if_it_may(world: Any) -> None:
    sandbox, shy = await make(world, auto_resume=True), await make(world)
    await world.control.states.standby(world.me, shy.id)
    await (await world.control.guest(world.me, shy.id)).call("ping", {})
    assert await state_of(world, shy) is State.RUNNING
    for one in (sandbox, shy):
        await world.control.states.pause(world.me, one.id)
    await (await world.control.guest(world.me, sandbox.id)).call("ping", {})
    assert await state_of(world, sandbox) is State.RUNNING
    with pytest.raises(Conflict) as caught:
        await world.control.guest(world.me, shy.id)
    assert caught.value.code == "not_running"


@pytest.mark.parametrize(
    ("action", "state"),
    [
        (DeadlineAction.PAUSE, State.PAUSED),
        (DeadlineAction.PAUSE_DISK, State.PAUSED),
        (DeadlineAction.STANDBY, State.STANDBY),
    ],
)
async def test_a_deadline_may_put_to_sleep(world: Any, action: DeadlineAction, state: State) -> None:
    sandbox = await make(world, timeout_s=10, on_deadline=action)
    await world.clock.advance(11)
    await wait_state(world, sandbox, state)
    await world.clock.advance(100)
    assert await state_of(world, sandbox) is state
    assert (await world.control.sandbox_get(world.me, sandbox.id)).sleep_reason is SleepReason.DEADLINE
    awake = await world.control.states.resume(world.me, sandbox.id)
    assert (awake.deadline_at - world.clock.now()).total_seconds() == 10


async def test_the_deadline_of_one_that_is_frozen_can_be_moved_where_it_counts(world: Any) -> None:
    """In standby a deadline goes on, unless standby is what it leads to: then there is one again when it wakes."""
    sandbox = await make(world, timeout_s=10)
    await world.control.states.standby(world.me, sandbox.id)
    moved = await world.control.sandbox_set_deadline(world.me, sandbox.id, 60)
    assert (moved.deadline_at - world.clock.now()).total_seconds() == 60
    await world.clock.advance(30)
    await anyio.sleep(0.05)
    assert await state_of(world, sandbox) is State.STANDBY
    await world.clock.advance(31)
    await wait_state(world, sandbox, State.KILLED)
    other = await make(world, timeout_s=10, on_deadline=DeadlineAction.STANDBY)
    await world.control.states.standby(world.me, other.id)
    with pytest.raises(Conflict):
        await world.control.sandbox_set_deadline(world.me, other.id, 60)


async def test_one_whose_budget_is_spent_is_woken_neither_by_a_resume_nor_by_a_rollback(world: Any) -> None:
    sandbox = await make(world, budget=Budget(seconds=10), on_budget=DeadlineAction.PAUSE, timeout_s=10**6)
    snapshot = await world.control.snapshots.take(world.me, sandbox.id, SnapshotSpec())
    with anyio.fail_after(30):
        while await state_of(world, sandbox) is not State.PAUSED:
            await world.clock.advance(11)
            await anyio.sleep(0.005)
    states = world.control.states
    for wake, more in ((states.resume, ()), (states.rollback, (snapshot,))):
        with pytest.raises(LimitExceeded) as refused:
            await wake(world.me, sandbox.id, *more)
        assert refused.value.code == "budget_spent"
    assert await state_of(world, sandbox) is State.PAUSED
    await world.control.sandbox_set_budget(world.me, sandbox.id, Budget(seconds=10**6), None)
    assert (await states.rollback(world.me, sandbox.id, snapshot)).state is State.RUNNING


async def test_a_sleep_that_fails_is_tried_again_later(world: Any) -> None:
    sandbox = await make(world, timeout_s=10, on_deadline=DeadlineAction.PAUSE)
    world.node.pause_errors = [OutOfSpace("full")]
    await world.clock.advance(11)
    with anyio.fail_after(5):
        while world.node.pause_errors or await state_of(world, sandbox) is not State.RUNNING:
            await anyio.sleep(0.005)
    await anyio.sleep(0.05)
    await world.clock.advance(40)
    await wait_state(world, sandbox, State.PAUSED)


async def test_an_idle_sandbox_is_treated_as_due(world: Any) -> None:
    idle = await make(world, timeout_s=1000, idle_timeout_s=10)
    busy = await make(world, timeout_s=1000, idle_timeout_s=10)
    world.node.idle_seconds = {idle.id: 11.0}
    await world.clock.advance(11)
    await wait_state(world, idle, State.KILLED)
    assert (await world.control.sandbox_get(world.me, idle.id)).end_reason is EndReason.IDLE
    sleepy = await make(world, timeout_s=1000, idle_timeout_s=10, on_deadline=DeadlineAction.STANDBY)
    world.node.idle_seconds = {sleepy.id: 11.0}
    await world.clock.advance(11)
    await wait_state(world, sleepy, State.STANDBY)
    assert (await world.control.sandbox_get(world.me, sleepy.id)).sleep_reason is SleepReason.IDLE
    assert await state_of(world, busy) is State.RUNNING


async def test_a_sandbox_that_is_slow_to_say_whether_it_is_idle_holds_up_no_deadline(world: Any) -> None:
    slow = await make(world, timeout_s=1000, idle_timeout_s=10)
    due = await make(world, timeout_s=20)
    world.node.idle_seconds = {slow.id: 11.0}
    world.node.idle_waits[slow.id] = anyio.Event()
    await world.clock.advance(21)
    await wait_state(world, due, State.KILLED)
    assert await state_of(world, slow) is State.RUNNING
    world.node.idle_waits.pop(slow.id).set()
    await wait_state(world, slow, State.KILLED)


async def test_a_restart_finds_what_sleeps_asleep(open_world: Any) -> None:
    node, clock = FakeNode(), VirtualClock()
    async with open_world(node, clock) as world:
        paused, frozen, lost = await make(world), await make(world), await make(world)
        await world.control.states.pause(world.me, paused.id)
        await world.control.states.standby(world.me, frozen.id)
        await world.control.states.pause(world.me, lost.id)
    node.paused.pop(lost.id)
    async with open_world(node, clock) as world:
        assert await state_of(world, paused) is State.PAUSED
        assert await state_of(world, frozen) is State.STANDBY
        await wait_state(world, lost, State.FAILED)


async def test_a_restart_has_the_node_do_what_is_on_record(open_world: Any) -> None:
    """A server was killed while it took a snapshot of one in standby, and while it put another one there."""
    node, clock = FakeNode(), VirtualClock()
    async with open_world(node, clock) as world:
        frozen, running = await make(world), await make(world)
        await world.control.states.standby(world.me, frozen.id)
    node.frozen = {running.id}
    async with open_world(node, clock) as world:
        assert node.frozen == {frozen.id}
        assert [await state_of(world, one) for one in (frozen, running)] == [State.STANDBY, State.RUNNING]


async def test_one_that_cannot_be_told_does_not_keep_the_server_from_its_start(
    open_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, clock = FakeNode(), VirtualClock()
    async with open_world(node, clock) as world:
        broken, frozen = await make(world), await make(world)
        for one in (broken, frozen):
            await world.control.states.standby(world.me, one.id)
    node.frozen = set()
    standby = node.sandbox_standby

    async def standby_or_not(sandbox_id: str) -> None:
        if sandbox_id == broken.id:
            raise OSError("no file is left")
        await standby(sandbox_id)

    monkeypatch.setattr(node, "sandbox_standby", standby_or_not)
    async with open_world(node, clock) as world:
        assert node.frozen == {frozen.id}
        await (await world.control.guest(world.me, broken.id)).call("ping", {})
        assert await state_of(world, broken) is State.RUNNING


@pytest.mark.parametrize("state", [State.RUNNING, State.STANDBY, State.PAUSING, State.PAUSED, State.RESUMING])
@pytest.mark.parametrize("paused", [True, False])
async def test_what_the_record_learns_leads_to_what_the_node_has(state: State, paused: bool) -> None:
    from atoll.model.lifecycle import advance

    for note in settled(state, not paused, paused):
        assert isinstance(note.trigger, Trigger)
        state = advance(state, note.trigger)
    assert state is State.PAUSED if paused else state in (State.RUNNING, State.STANDBY)
