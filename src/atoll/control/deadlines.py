"""The deadline loop: one task that sleeps until the earliest deadline and ends what is due."""

from __future__ import annotations

from datetime import datetime

import anyio

from atoll.control.clock import Clock
from atoll.control.ledger import Ledger
from atoll.control.reconcile import GONE, Action, Note
from atoll.control.teardown import Teardown
from atoll.model.lifecycle import EndReason, State, Trigger

PASSED = Note(Trigger.DEADLINE_PASSED, EndReason.DEADLINE)


class Deadlines:
    """Knows which moment is waited for, so that only an earlier one disturbs the sleep."""

    def __init__(self, ledger: Ledger, teardown: Teardown, clock: Clock) -> None:
        self._ledger = ledger
        self._teardown = teardown
        self._clock = clock
        self._awaited: datetime | None = None
        self._changed = anyio.Event()

    def note(self, deadline_at: datetime) -> None:
        """Some sandbox has this deadline now."""
        if self._awaited is None or deadline_at < self._awaited:
            self._changed.set()

    async def step(self) -> None:
        """End what is due, then wait for the next deadline."""
        # Deadlines that are set while the record is being read must not be missed: any of them wakes the wait below.
        self._awaited = None
        self._changed = anyio.Event()
        for sandbox_id in await self._ledger.overdue(self._clock.now()):
            await self._end(sandbox_id)
        self._awaited = await self._ledger.next_deadline()
        await self._clock.wait_until(self._awaited, self._changed)

    async def _end(self, sandbox_id: str) -> None:
        sandbox = await self._ledger.advance(sandbox_id, PASSED)
        if sandbox is not None and sandbox.state is State.ENDING:
            self._teardown.begin(Action(sandbox_id, last=GONE))
