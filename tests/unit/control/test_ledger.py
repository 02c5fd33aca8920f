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
