"""The plan at start, and a server that stops and comes back."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from atoll.control.reconcile import CUT_SHORT, LOST, NODE_LOST, Action, plan
from atoll.model.lifecycle import EndReason, State
from atoll.model.sandbox import SandboxSpec
from atoll.testing.clock import VirtualClock
from atoll.testing.nodes import FakeNode


def test_the_plan_has_an_answer_to_every_difference() -> None:
    live = {
        "kept": State.RUNNING,
        "lost": State.RUNNING,
        "half": State.CREATING,
        "halfthere": State.CREATING,
        "going": State.ENDING,
        "goingthere": State.ENDING,
    }
    present = frozenset({"kept", "halfthere", "goingthere", "stranger"})
    assert plan(live, present) == [
        Action("lost", first=LOST),
        Action("half", first=CUT_SHORT),
        Action("halfthere", first=CUT_SHORT),
        Action("going"),
        Action("goingthere"),
        Action("stranger"),
    ]
    assert plan({"lost": State.PAUSED}, frozenset(), restarted=True) == [Action("lost", first=NODE_LOST)]


def test_agreement_needs_no_action() -> None:
    assert plan({"a": State.RUNNING}, frozenset({"a"})) == []
    assert plan({}, frozenset()) == []


@pytest.mark.anyio
async def test_a_restart_keeps_what_runs_and_ends_the_rest(open_world: Any) -> None:
    node, clock = FakeNode(), VirtualClock()
    async with open_world(node, clock) as world:
        kept, _ = await world.control.sandbox_create(world.me, SandboxSpec(name="kept"))
        lost, _ = await world.control.sandbox_create(world.me, SandboxSpec())
        due, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=10))
    node.guests.pop(lost.id)
    await clock.advance(20)
    async with open_world(node, clock) as world:
        with anyio.fail_after(5):
            while len(node.guests) > 1:
                await anyio.sleep(0.005)
            while (await world.control.sandbox_get(world.me, due.id)).state is not State.KILLED:
                await anyio.sleep(0.005)
        assert (await world.control.sandbox_get(world.me, "kept")).state is State.RUNNING
        assert (await world.control.sandbox_get(world.me, due.id)).end_reason is EndReason.DEADLINE
        gone = await world.control.sandbox_get(world.me, lost.id)
        assert (gone.state, gone.end_reason) == (State.FAILED, EndReason.RUNTIME_DIED)
        assert "did not survive" in gone.end_detail
        assert set(node.guests) == {kept.id}


@pytest.mark.anyio
async def test_a_kill_that_was_cut_short_is_finished_at_the_next_start(open_world: Any) -> None:
    node, clock = FakeNode(), VirtualClock()
    async with open_world(node, clock) as world:
        sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec())
        node.destroy_errors = [RuntimeError("stuck")] * 3
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.control.sandbox_kill, world.me, sandbox.id)
            while (await world.control.sandbox_get(world.me, sandbox.id)).state is not State.ENDING:
                await anyio.sleep(0.001)
            tasks.cancel_scope.cancel()
    assert set(node.guests) == {sandbox.id}
    node.destroy_errors = []
    async with open_world(node, clock) as world:
        with anyio.fail_after(5):
            while (await world.control.sandbox_get(world.me, sandbox.id)).state is not State.KILLED:
                await anyio.sleep(0.005)
        assert (await world.control.sandbox_get(world.me, sandbox.id)).end_reason is EndReason.KILLED_BY_USER
        assert node.guests == {}
