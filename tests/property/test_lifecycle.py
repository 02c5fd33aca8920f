"""The lifecycle: the table by itself, and histories of control over a node in memory."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atoll.control.authz import ALL_SCOPES, Principal
from atoll.control.sandboxes import Query
from atoll.control.service import Control
from atoll.control.store.engine import Store, sqlite_url
from atoll.model.errors import Conflict, Unavailable
from atoll.model.lifecycle import FINAL, LIVE, EndReason, State, Trigger, advance, may
from atoll.model.sandbox import SandboxSpec
from atoll.telemetry import Metrics
from atoll.testing.clock import VirtualClock
from atoll.testing.nodes import FakeNode

ME = Principal("default", "ak", ALL_SCOPES)


@given(st.lists(st.sampled_from(Trigger), max_size=20))
def test_an_end_is_final(triggers: list[Trigger]) -> None:
    state = State.CREATING
    for trigger in triggers:
        if may(state, trigger):
            assert state in LIVE
            state = advance(state, trigger)
        else:
            with pytest.raises(Conflict):
                advance(state, trigger)
        if state in FINAL:
            assert not any(may(state, any_trigger) for any_trigger in Trigger)


@pytest.mark.parametrize("state", sorted(LIVE))
def test_every_live_state_leads_to_an_end(state: State) -> None:
    reached = {state}
    for _ in State:
        reached |= {advance(one, trigger) for one in reached for trigger in Trigger if may(one, trigger)}
    assert reached & FINAL


STEPS = st.sampled_from(["create", "create_fails", "create_cancelled", "kill", "die", "deadline", "wait", "restart"])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(STEPS, st.integers(0, 5)), max_size=14))
def test_record_and_node_agree_after_any_history(steps: list[tuple[str, int]]) -> None:
    """After every history, and once all ends are carried out, what runs on record is exactly what the node has."""
    with tempfile.TemporaryDirectory() as folder:
        anyio.run(History(Path(folder)).play, steps)


class History:
    """Plays steps against servers that share a node, a clock and a database."""

    def __init__(self, folder: Path) -> None:
        self._url = sqlite_url(folder / "db")
        self._node = FakeNode()
        self._clock = VirtualClock()
        self._made: list[str] = []

    async def play(self, steps: list[tuple[str, int]]) -> None:
        while steps:
            async with self._node.running(), Store.open(self._url) as store:
                async with Control.open(store, self._node, self._clock, Metrics()) as control:
                    steps = await self._until_restart(control, steps)
                    if not steps:
                        await self._check(control)

    async def _until_restart(self, control: Control, steps: list[tuple[str, int]]) -> list[tuple[str, int]]:
        for index, (name, number) in enumerate(steps):
            if name == "restart":
                return steps[index + 1 :]
            await self._step(control, name, number)
        return []

    async def _step(self, control: Control, name: str, number: int) -> None:
        some = self._made[number % len(self._made)] if self._made else None
        match name:
            case "create":
                await self._create(control, number)
            case "create_fails":
                self._node.create_errors = [Unavailable("full")]
                await self._create(control, number)
                self._node.create_errors = []
            case "create_cancelled":
                self._node.create_s = 5
                with anyio.move_on_after(0.01):
                    await self._create(control, number)
                self._node.create_s = 0
            case "kill" if some:
                assert (await control.sandbox_kill(ME, some)).state in FINAL
            case "die" if some in self._node.guests:
                assert some is not None
                self._node.die(some)
            case "deadline" if some:
                with suppress(Conflict):
                    await control.sandbox_set_deadline(ME, some, 1 + number)
            case "wait":
                await self._clock.advance(number * 20)

    async def _create(self, control: Control, number: int) -> None:
        spec = SandboxSpec(name=f"n{number}" if number < 3 else None, timeout_s=10 + number * 10)
        try:
            self._made.append((await control.sandbox_create(ME, spec))[0].id)
        except (Conflict, Unavailable):
            return  # the name is taken, or the node was told to refuse

    async def _check(self, control: Control) -> None:
        with anyio.fail_after(10):
            while True:
                items = (await control.sandbox_list(ME, Query(), None, 100)).items
                running = {item.id for item in items if item.state is State.RUNNING}
                due = any(item.deadline_at <= self._clock.now() for item in items if item.id in running)
                if (
                    running == set(self._node.guests)
                    and not due
                    and all(i.state in FINAL for i in items if i.id not in running)
                ):
                    break
                await anyio.sleep(0.005)
        for item in items:
            assert (item.ended_at is not None) == (item.state in FINAL) == (item.end_reason is not None)
            assert item.end_reason is not EndReason.START_FAILED or item.state is State.FAILED
