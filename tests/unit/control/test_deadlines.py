"""Deadlines that come to nothing, come late, or are moved while somebody acts on them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from atoll.control import ledger as ledgers
from atoll.model import limits
from atoll.model.errors import OutOfSpace, Unavailable
from atoll.model.lifecycle import EndReason, SleepReason, State
from atoll.model.sandbox import Budget, DeadlineAction, Sandbox, SandboxSpec

pytestmark = pytest.mark.anyio


async def make(world: Any, **options: Any) -> Sandbox:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(**options))
    assert isinstance(sandbox, Sandbox)
    return sandbox


async def state_of(world: Any, sandbox: Sandbox) -> State:
    found = await world.control.sandbox_get(world.me, sandbox.id)
    assert isinstance(found.state, State)
    return found.state


async def wait_state(world: Any, sandbox: Sandbox, state: State, step_s: float = 0) -> None:
    """Until it is in this state; as long as it is not, so much time passes."""
    with anyio.fail_after(5):
        while await state_of(world, sandbox) is not state:
            await anyio.sleep(0.005)
            if step_s:
                await world.clock.advance(step_s)


async def wait_told(logs: Any) -> None:
    """Until an attempt to put one to sleep has come to nothing."""
    with anyio.fail_after(5):
        while not any(entry["event"] == "sandbox_stays_awake" for entry in logs):
            await anyio.sleep(0.005)
    await anyio.wait_all_tasks_blocked()


async def wait_in_line(world: Any, sandbox: Sandbox, step_s: float = 0) -> None:
    """Until somebody waits for the turn that another one has; as long as nobody does, so much time passes."""
    with anyio.fail_after(5):
        while world.control.states.exclusive._locks[sandbox.id][1] < 2:
            await anyio.sleep(0.005)
            if step_s:
                await world.clock.advance(step_s)


async def wait_turn_over(world: Any, sandbox: Sandbox) -> None:
    """Until nobody has or wants a turn any more."""
    with anyio.fail_after(5):
        while sandbox.id in world.control.states.exclusive._locks:
            await anyio.sleep(0.005)


@pytest.mark.parametrize("action", [DeadlineAction.PAUSE, DeadlineAction.STANDBY])
@pytest.mark.parametrize("trouble", [Unavailable("the disk is full"), RuntimeError("a bug")], ids=["full", "bug"])
async def test_a_sleep_that_cannot_be_written_down_does_not_end_the_server(
    world: Any, monkeypatch: pytest.MonkeyPatch, action: DeadlineAction, trouble: Exception
) -> None:
    sandbox = await make(world, timeout_s=10, on_deadline=action)
    ledger = world.control.states._ledger

    async def fail(*_: Any, **__: Any) -> Any:
        raise trouble

    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(ledger, "advance", fail)
        patched.setattr(ledger, "set_deadline", fail)
        await world.clock.advance(11)
        await wait_told(logs)
    assert await state_of(world, sandbox) is State.RUNNING
    await world.clock.advance(limits.SLEEP_RETRY_S)
    await wait_state(world, sandbox, State.PAUSED if action is DeadlineAction.PAUSE else State.STANDBY)


async def test_a_sleep_whose_turn_does_not_come_is_tried_again(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot takes longer than anybody waits for it."""
    monkeypatch.setattr(limits, "STATE_WAIT_S_MAX", 0.01)
    sandbox = await make(world, timeout_s=10, on_deadline=DeadlineAction.PAUSE)
    async with world.control.states.exclusive.turn(sandbox.id):
        with capture_logs() as logs:
            await world.clock.advance(11)
            await wait_told(logs)
    assert await state_of(world, sandbox) is State.RUNNING
    await world.clock.advance(limits.SLEEP_RETRY_S)
    await wait_state(world, sandbox, State.PAUSED)


async def test_while_one_waits_to_be_put_to_sleep_nobody_else_does(world: Any) -> None:
    sandbox = await make(world, timeout_s=10, on_deadline=DeadlineAction.PAUSE)
    states = world.control.states
    async with states.exclusive.turn(sandbox.id):
        await world.clock.advance(11)
        await wait_in_line(world, sandbox)
        for _ in range(3):
            states._deadlines.look_again()
            await anyio.sleep(0.01)
        assert states.exclusive._locks[sandbox.id][1] == 2
    await wait_state(world, sandbox, State.PAUSED)


async def test_a_deadline_that_is_moved_before_its_turn_comes_is_not_acted_on(world: Any) -> None:
    sandbox = await make(world, timeout_s=10, on_deadline=DeadlineAction.PAUSE)
    async with world.control.states.exclusive.turn(sandbox.id):
        await world.clock.advance(11)
        await wait_in_line(world, sandbox)
        await world.control.sandbox_set_deadline(world.me, sandbox.id, 60)
    await wait_turn_over(world, sandbox)
    assert await state_of(world, sandbox) is State.RUNNING
    await world.clock.advance(60)
    await wait_state(world, sandbox, State.PAUSED)


async def test_one_that_is_used_before_its_turn_comes_is_not_idle(world: Any) -> None:
    sandbox = await make(world, timeout_s=1000, idle_timeout_s=10, on_deadline=DeadlineAction.STANDBY)
    world.node.idle_seconds[sandbox.id] = 11.0
    async with world.control.states.exclusive.turn(sandbox.id):
        await world.clock.advance(11)
        await wait_in_line(world, sandbox)
        world.node.idle_seconds[sandbox.id] = 0.0
    await wait_turn_over(world, sandbox)
    assert await state_of(world, sandbox) is State.RUNNING


async def test_one_whose_budget_is_raised_before_its_turn_comes_is_not_stopped(world: Any) -> None:
    sandbox = await make(world, timeout_s=10**6, budget=Budget(seconds=10), on_budget=DeadlineAction.PAUSE)
    async with world.control.states.exclusive.turn(sandbox.id):
        await wait_in_line(world, sandbox, 11)
        await world.control.sandbox_set_budget(world.me, sandbox.id, Budget(seconds=10_000), None)
    await wait_turn_over(world, sandbox)
    assert await state_of(world, sandbox) is State.RUNNING
    await wait_state(world, sandbox, State.PAUSED, 10_000)
    assert (await world.control.sandbox_get(world.me, sandbox.id)).sleep_reason is SleepReason.BUDGET_SPENT


async def test_a_deadline_that_is_moved_while_its_end_is_written_does_not_end_it(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The move is on record, and its caller about to hear so, when the loop decides by what it has read before."""
    sandbox = await make(world, timeout_s=10)
    ledger, moved = world.control.states._ledger, anyio.Event()
    overdue, later = ledger.overdue, world.clock.now() + timedelta(seconds=60)

    async def overdue_then_moved(now: Any) -> Any:
        found = await overdue(now)
        if found and not moved.is_set():
            await ledger._store.write(ledgers._set_deadline, sandbox.id, later, None, False)
            moved.set()
        return found

    monkeypatch.setattr(ledger, "overdue", overdue_then_moved)
    await world.clock.advance(11)
    with anyio.fail_after(5):
        await moved.wait()
    await anyio.sleep(0.05)
    assert await state_of(world, sandbox) is State.RUNNING
    await world.clock.advance(49)
    await wait_state(world, sandbox, State.KILLED)


async def test_a_budget_that_is_raised_while_its_end_is_written_does_not_end_it(world: Any) -> None:
    sandbox = await make(world, timeout_s=10**6, budget=Budget(seconds=10))
    await world.control._sandboxes.stop_spent(sandbox.id)
    assert await state_of(world, sandbox) is State.RUNNING
    await wait_state(world, sandbox, State.KILLED, 11)
    assert (await world.control.sandbox_get(world.me, sandbox.id)).end_reason is EndReason.BUDGET_SPENT


async def test_a_pause_that_fails_does_not_outlive_the_deadline(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It passed while nobody looked for it, because what is being paused has none."""
    sandbox = await make(world, timeout_s=10)
    passed = anyio.Event()

    async def pause_and_fail(_sandbox_id: str, **_: Any) -> None:
        await passed.wait()
        raise OutOfSpace("full")

    monkeypatch.setattr(world.node, "sandbox_pause", pause_and_fail)
    async with anyio.create_task_group() as tasks:

        async def pause() -> None:
            with pytest.raises(OutOfSpace):
                await world.control.states.pause(world.me, sandbox.id)

        tasks.start_soon(pause)
        await wait_state(world, sandbox, State.PAUSING)
        await world.clock.advance(11)
        await anyio.sleep(0.05)  # the loop has seen that nothing is due
        passed.set()
    await wait_state(world, sandbox, State.KILLED)
    assert (await world.control.sandbox_get(world.me, sandbox.id)).end_reason is EndReason.DEADLINE
