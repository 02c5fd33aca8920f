"""The record of sandboxes: what is remembered is what the database says, whoever was faster."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from atoll.control import ledger as ledgers
from atoll.control.store import sandboxes as rows
from atoll.model.lifecycle import State
from atoll.model.sandbox import Budget, DeadlineAction, SandboxSpec

pytestmark = pytest.mark.anyio


async def test_what_was_changed_while_a_step_was_written_is_not_forgotten(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step was begun with an older deadline and budget, which are none of its business."""
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=10))
    ledger = world.control.states._ledger
    store, later = ledger._store, world.clock.now() + timedelta(seconds=60)
    write = store.write
    met: list[Any] = []

    async def write_late(query: Any, *arguments: Any, **options: Any) -> Any:
        if query is ledgers._move and not met:
            met.append(query)
            assert await ledger.set_deadline(sandbox.id, later, world.me)
            await ledger.set_budget(sandbox, Budget(seconds=70), DeadlineAction.PAUSE, world.me)
        return await write(query, *arguments, **options)

    monkeypatch.setattr(store, "write", write_late)
    told = await world.control.states.standby(world.me, sandbox.id)
    remembered = await world.control.sandbox_get(world.me, sandbox.id)
    record = await store.read(rows.by_id, sandbox.id)
    assert told == remembered == record.sandbox
    assert met
    assert (remembered.state, remembered.deadline_at) == (State.STANDBY, later)
    assert (remembered.budget, remembered.on_budget) == (Budget(seconds=70), DeadlineAction.PAUSE)


async def test_what_ends_while_the_living_are_looked_up_stays_ended(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read of it is old by the time that it is here, and nothing would end it in memory again."""
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=10))
    ledger = world.control.states._ledger
    read = ledger._store.read

    async def read_early(query: Any, *arguments: Any, **options: Any) -> Any:
        found = await read(query, *arguments, **options)
        if query is rows.live:
            await world.control.sandbox_kill(world.me, sandbox.id)
        return found

    monkeypatch.setattr(ledger._store, "read", read_early)
    assert [one.id for one in await ledger.live(world.me.owner)] == [sandbox.id]
    assert (await world.control.sandbox_get(world.me, sandbox.id)).state is State.KILLED
    assert ledger.live_ids() == []
