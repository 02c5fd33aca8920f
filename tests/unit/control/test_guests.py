"""The way into a sandbox, while it falls asleep."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from atoll.model.errors import LimitExceeded
from atoll.model.lifecycle import State
from atoll.model.sandbox import Budget, DeadlineAction, SandboxSpec

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("how", ["send", "control", "commit"])
async def test_what_goes_in_on_an_open_stream_wakes_from_standby(
    world: Any, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A person types into a terminal whose sandbox was frozen at its deadline."""
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec())
    inside = await world.control.guest(world.me, sandbox.id)
    heard: list[bool] = []

    async def hear(_stream: Any, *_: Any) -> None:
        heard.append(sandbox.id in world.node.frozen)

    for name in ("send", "send_control", "commit"):
        monkeypatch.setattr(f"atoll.testing.fakeguest.FakeStream.{name}", hear)
    async with inside.stream("process.list", {}) as stream:
        acts = {"send": lambda: stream.send(b"x"), "control": lambda: stream.send_control({}), "commit": stream.commit}
        await acts[how]()
        await world.control.states.standby(world.me, sandbox.id)
        await acts[how]()
        assert (await world.control.sandbox_get(world.me, sandbox.id)).state is State.RUNNING
        assert heard == [False, False]
        assert [message async for message in stream]


async def test_one_that_may_not_wake_says_so_on_an_open_stream(world: Any) -> None:
    spec = SandboxSpec(budget=Budget(seconds=10), on_budget=DeadlineAction.STANDBY, timeout_s=10**6)
    sandbox, _ = await world.control.sandbox_create(world.me, spec)
    async with (await world.control.guest(world.me, sandbox.id)).stream("process.list", {}) as stream:
        with anyio.fail_after(5):
            while (await world.control.sandbox_get(world.me, sandbox.id)).state is not State.STANDBY:
                await world.clock.advance(11)
                await anyio.sleep(0.005)
        with pytest.raises(LimitExceeded) as refused:
            await stream.send(b"x")
        assert refused.value.code == "budget_spent"
