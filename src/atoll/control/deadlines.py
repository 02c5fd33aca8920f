"""The deadline loop: one task that sleeps until the earliest deadline and ends what is due, or puts it to sleep.

A sandbox that was idle for as long as it may be is treated like one whose deadline has come. How long it was idle is
the node's to know, and is asked only about those that have such a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import anyio

from atoll.control.clock import Clock
from atoll.control.clockjumps import ClockJumps
from atoll.control.ledger import Ledger
from atoll.control.reconcile import Action, Note
from atoll.control.teardown import Teardown
from atoll.model.errors import NotFound
from atoll.model.lifecycle import EndReason, SleepReason, State, Trigger
from atoll.model.sandbox import DeadlineAction, Sandbox
from atoll.wire.node import NodePort

PASSED = Note(Trigger.DEADLINE_PASSED, EndReason.DEADLINE)
IDLE = Note(Trigger.DEADLINE_PASSED, EndReason.IDLE)
_SLEEPS = {PASSED: SleepReason.DEADLINE, IDLE: SleepReason.IDLE}


class Deadlines:
    """Knows which moment is waited for, so that only an earlier one disturbs the sleep."""

    def __init__(self, ledger: Ledger, teardown: Teardown, node: NodePort, clock: Clock) -> None:
        self._ledger = ledger
        self._teardown = teardown
        self._node = node
        self._clock = clock
        self.sleeper: Callable[[str, DeadlineAction, SleepReason], None] | None = None
        """Begins to put a sandbox to sleep; without one, every deadline kills."""
        self.jumps: ClockJumps | None = None
        self._awaited: datetime | None = None
        self._changed = anyio.Event()

    def note(self, deadline_at: datetime) -> None:
        """Some sandbox has this deadline now."""
        if self._awaited is None or deadline_at < self._awaited:
            self._changed.set()

    def note_running(self, sandbox: Sandbox) -> None:
        """A sandbox runs from now on, with a deadline and perhaps a bound on being idle."""
        self.note(sandbox.deadline_at)
        if sandbox.idle_timeout_s is not None:
            self.note(self._clock.now() + timedelta(seconds=sandbox.idle_timeout_s))

    async def step(self) -> None:
        """End what is due, then wait for the next deadline."""
        # Deadlines that are set while the record is being read must not be missed: any of them wakes the wait below.
        self._awaited = None
        self._changed = anyio.Event()
        if self.jumps is not None:
            await self.jumps.settle()
        now = self._clock.now()
        for sandbox_id in await self._ledger.overdue(now):
            await self._due(sandbox_id, PASSED)
        looks = [await self._ledger.next_deadline(now), await self._idle(now)]
        self._awaited = min((moment for moment in looks if moment is not None), default=None)
        await self._clock.wait_until(self._awaited, self._changed)

    async def _idle(self, now: datetime) -> datetime | None:
        """Act on those that were idle for too long; the moment at which the next one may be."""
        looks = []
        for sandbox in self._ledger.idle_watched():
            assert sandbox.idle_timeout_s is not None
            try:
                left_s = sandbox.idle_timeout_s - self._node.idle_s(sandbox.id)
            except NotFound:
                continue  # it has just ended
            if left_s <= 0:
                await self._due(sandbox.id, IDLE)
                left_s = sandbox.idle_timeout_s
            looks.append(now + timedelta(seconds=left_s))
        return min(looks, default=None)

    def sleeps(self, sandbox_id: str, action: DeadlineAction, reason: SleepReason) -> bool:
        """Begin what the owner chose in place of an end; False if that is the end."""
        if self.sleeper is None or action is DeadlineAction.KILL:
            return False
        self.sleeper(sandbox_id, action, reason)
        return True

    async def _due(self, sandbox_id: str, note: Note) -> None:
        record = await self._ledger.record(sandbox_id)
        if record is not None and self.sleeps(record.sandbox.id, record.sandbox.on_deadline, _SLEEPS[note]):
            return
        sandbox = await self._ledger.advance(sandbox_id, note)
        if sandbox is not None and sandbox.state is State.ENDING:
            self._teardown.begin(Action(sandbox_id))
