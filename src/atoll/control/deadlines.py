"""The deadline loop: one task that sleeps until the earliest deadline and ends what is due, or puts it to sleep.

A sandbox that was idle for as long as it may be is treated like one whose deadline has come. How long it was idle is
the node's to know, and is asked only about those that have such a bound; in a loop of its own, because the inside of a
sandbox has a say in it and may be slow, which must not hold up anybody's deadline.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import datetime, timedelta

import anyio
import structlog

from atoll.control.clock import Clock
from atoll.control.clockjumps import ClockJumps
from atoll.control.ledger import Ledger, Still
from atoll.control.reconcile import Action, Note
from atoll.control.store import sandboxes as rows
from atoll.control.teardown import Teardown
from atoll.model.errors import AtollError, NotFound
from atoll.model.lifecycle import EndReason, SleepReason, State, Trigger
from atoll.model.sandbox import DeadlineAction, Sandbox
from atoll.wire.node import NodePort

log = structlog.get_logger(__name__)

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
        """Begins to put a sandbox to sleep, unless that has begun; without one, every deadline kills."""
        self.jumps: ClockJumps | None = None
        self._awaited: datetime | None = None
        self._changed = anyio.Event()
        self._idle_awaited: datetime | None = None
        self._idle_changed = anyio.Event()

    def note(self, deadline_at: datetime) -> None:
        """Some sandbox has this deadline now."""
        if self._awaited is None or deadline_at < self._awaited:
            self._changed.set()

    def look_again(self) -> None:
        """What came to nothing at a deadline is due again."""
        self._changed.set()

    def note_running(self, sandbox: Sandbox) -> None:
        """A sandbox runs from now on, with a deadline and perhaps a bound on being idle."""
        self.note(sandbox.deadline_at)
        if sandbox.idle_timeout_s is not None:
            look_at = self._clock.now() + timedelta(seconds=sandbox.idle_timeout_s)
            if self._idle_awaited is None or look_at < self._idle_awaited:
                self._idle_changed.set()

    async def step(self) -> None:
        """End what is due, then wait for the next deadline."""
        # Deadlines that are set while the record is being read must not be missed: any of them wakes the wait below.
        self._awaited = None
        self._changed = anyio.Event()
        if self.jumps is not None:
            await self.jumps.settle()
        now = self._clock.now()
        for sandbox_id in await self._ledger.overdue(now):
            # Who moves a deadline is heard until the end is on record.
            await self._due(sandbox_id, PASSED, functools.partial(rows.is_overdue, sandbox_id=sandbox_id, now=now))
        self._awaited = await self._ledger.next_deadline(now)
        await self._clock.wait_until(self._awaited, self._changed)

    async def idle_step(self) -> None:
        """Act on those that were idle for too long, then wait until the next one may be."""
        self._idle_awaited = None
        self._idle_changed = anyio.Event()
        looks: list[datetime] = []
        async with anyio.create_task_group() as tasks:
            for sandbox in self._ledger.idle_watched():
                tasks.start_soon(self._idle_look, sandbox, looks)
        self._idle_awaited = min(looks, default=None)
        await self._clock.wait_until(self._idle_awaited, self._idle_changed)

    async def _idle_look(self, sandbox: Sandbox, looks: list[datetime]) -> None:
        assert sandbox.idle_timeout_s is not None
        left_s = sandbox.idle_timeout_s
        try:
            left_s -= await self._node.idle_s(sandbox.id, sandbox.idle_timeout_s)
            if left_s <= 0:
                left_s = sandbox.idle_timeout_s
                await self._due(sandbox.id, IDLE)
        except NotFound:
            return  # it has just ended
        except AtollError as error:  # one that cannot be looked at, or written down, does not hide the others
            log.warning("idle_look_failed", sandbox_id=sandbox.id, error=repr(error))
        looks.append(self._clock.now() + timedelta(seconds=left_s))

    def sleeps(self, sandbox_id: str, action: DeadlineAction, reason: SleepReason) -> bool:
        """Begin what the owner chose in place of an end; False if that is the end."""
        if self.sleeper is None or action is DeadlineAction.KILL:
            return False
        self.sleeper(sandbox_id, action, reason)
        return True

    async def _due(self, sandbox_id: str, note: Note, still: Still | None = None) -> None:
        record = await self._ledger.record(sandbox_id)
        if record is not None and self.sleeps(record.sandbox.id, record.sandbox.on_deadline, _SLEEPS[note]):
            return
        sandbox = await self._ledger.advance(sandbox_id, note, still=still)
        if sandbox is not None and sandbox.state is State.ENDING:
            self._teardown.begin(Action(sandbox_id))
