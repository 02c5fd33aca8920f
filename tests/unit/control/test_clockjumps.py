"""A clock that is set: nobody dies of it, nobody is charged for it, and a deadline is as far away as it was."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio
import pytest

from atoll.control.store import sandboxes as rows
from atoll.control.usage import UsageFilter
from atoll.model.errors import Unavailable
from atoll.model.lifecycle import EndReason, State
from atoll.model.sandbox import Budget, DeadlineAction, SandboxSpec

pytestmark = pytest.mark.anyio

HOUR_S = 3600.0


async def wait_state(world: Any, sandbox_id: str, state: State) -> Any:
    with anyio.fail_after(5):
        while (sandbox := await world.control.sandbox_get(world.me, sandbox_id)).state is not state:
            await anyio.sleep(0.005)
    return sandbox


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S, 30 * 24 * HOUR_S])
async def test_a_deadline_is_as_far_away_as_before(world: Any, jump_s: float) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=100))
    await world.clock.advance(40)
    await world.clock.jump(jump_s)
    await world.control.accounts.usage.jumps.settle()
    left = (await world.control.sandbox_get(world.me, sandbox.id)).deadline_at - world.clock.now()
    assert left == timedelta(seconds=60)
    await world.clock.advance(59)
    await anyio.sleep(0.05)
    assert (await world.control.sandbox_get(world.me, sandbox.id)).state is State.RUNNING
    await world.clock.advance(1)
    assert (await wait_state(world, sandbox.id, State.KILLED)).end_reason is EndReason.DEADLINE


async def test_no_time_is_charged_that_did_not_pass(world: Any) -> None:
    spec = SandboxSpec(timeout_s=10**6, budget=Budget(seconds=500))
    sandbox, _ = await world.control.sandbox_create(world.me, spec)
    await world.clock.advance(100)
    await world.clock.jump(HOUR_S)
    await world.clock.advance(50)
    await anyio.sleep(0.05)
    found = await world.control.accounts.usage.query(UsageFilter("default", sandbox_id=sandbox.id))
    assert found[0].sum.usage.wall_s == 150
    assert (await world.control.sandbox_get(world.me, sandbox.id)).state is State.RUNNING


async def test_behind_a_clock_that_was_set_back_nothing_is_counted_twice(world: Any) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=10**6))
    await world.clock.advance(100)
    await world.clock.jump(-HOUR_S)
    await world.clock.advance(HOUR_S + 20)
    found = await world.control.accounts.usage.query(UsageFilter("default", sandbox_id=sandbox.id))
    assert found[0].sum.usage.wall_s == 120


async def test_a_jump_that_could_not_be_written_is_settled_later(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=100))
    jumps = world.control.accounts.usage.jumps
    with monkeypatch.context() as patched:

        async def fail(*_: object) -> None:
            raise Unavailable("the database does not answer", code="database_unavailable")

        patched.setattr(jumps._store, "write", fail)
        await world.clock.jump(HOUR_S)
        with pytest.raises(Unavailable):
            await jumps.settle()
    await jumps.settle()
    assert (await world.control.sandbox_get(world.me, sandbox.id)).state is State.RUNNING


@pytest.mark.parametrize("verb", ["create", "move", "wake", "resume"])
async def test_a_deadline_that_the_new_clock_has_set_is_not_moved_along(world: Any, verb: str) -> None:
    """It is set after the clock was, and before anybody has settled what that means for the others."""
    control, clock = world.control, world.clock
    spec = SandboxSpec(timeout_s=100, on_deadline=DeadlineAction.STANDBY)
    sandbox, _ = await control.sandbox_create(world.me, spec)
    if verb in ("wake", "resume"):
        await (control.states.standby if verb == "wake" else control.states.pause)(world.me, sandbox.id)
    clock._now += timedelta(hours=1)  # not by `jump`, which lets the loops hear of it
    clock._jumped += timedelta(hours=1)
    if verb == "create":
        sandbox, _ = await control.sandbox_create(world.me, spec)
    elif verb == "move":
        await control.sandbox_set_deadline(world.me, sandbox.id, 100)
    else:
        await control.states.resume(world.me, sandbox.id)
    await control.accounts.usage.jumps.settle()
    found = await control.sandbox_get(world.me, sandbox.id)
    assert found.deadline_at - clock.now() == timedelta(seconds=100)
    record = await control._ledger._store.read(rows.by_id, sandbox.id)
    assert record.sandbox.deadline_at == found.deadline_at


async def test_a_clock_that_was_only_put_right_moves_nothing(world: Any) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=100))
    await world.clock.jump(2)
    await world.control.accounts.usage.jumps.settle()
    assert (await world.control.sandbox_get(world.me, sandbox.id)).deadline_at == sandbox.deadline_at
