"""Sleep and waking: standby, pause, resume and rollback, and what happens at a deadline that does not kill.

Each use case has its turn at the sandbox alone, so two who resume at once get one sandbox, and a resume during a pause
waits for it. A kill waits for nobody: it goes on record, and whoever is at work on the sandbox finds out.

What was begun is finished even when its caller leaves, because half of it is worse than either end.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import anyio
import structlog

from atoll.control.attempts import Attempts
from atoll.control.authz import Principal
from atoll.control.clock import Clock
from atoll.control.deadlines import Deadlines
from atoll.control.exclusive import Exclusive
from atoll.control.ledger import Ledger
from atoll.control.reconcile import Note, settled
from atoll.control.sandboxes import not_running
from atoll.control.usage import Metering, Reading
from atoll.model import limits
from atoll.model.errors import AtollError, InvalidArgument, LimitExceeded, NotFound, Unavailable
from atoll.model.lifecycle import SLEEPING, SleepReason, State, Trigger
from atoll.model.sandbox import DeadlineAction, Sandbox, check_timeout, hostname_of
from atoll.model.snapshot import Snapshot
from atoll.wire.node import NodePort, SandboxOrder

log = structlog.get_logger(__name__)


class States:
    """What can be done to a sandbox as a whole."""

    def __init__(
        self,
        ledger: Ledger,
        deadlines: Deadlines,
        metering: Metering,
        attempts: Attempts,
        node: NodePort,
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._deadlines = deadlines
        self._metering = metering
        self._attempts = attempts
        self._node = node
        self._clock = clock
        self.exclusive = Exclusive()
        self._dozing: set[tuple[str, SleepReason]] = set()
        """Those that are being put to sleep, or will be again in a while, and why."""
        self._unsettled: dict[str, datetime] = {}
        """Those whose record is behind, because the database could not be written to."""
        self._more_unsettled = anyio.Event()

    async def standby(self, principal: Principal, reference: str) -> Sandbox:
        """Freeze a running sandbox; one that is in standby stays so."""
        sandbox = await self._ledger.find(principal.owner, reference)
        async with self.exclusive.turn(sandbox.id):
            sandbox = await self._ledger.find(principal.owner, sandbox.id)
            return sandbox if sandbox.state is State.STANDBY else await self._freeze(sandbox, principal)

    async def _freeze(self, sandbox: Sandbox, by: Principal | None, why: SleepReason = SleepReason.ASKED) -> Sandbox:
        if sandbox.state is not State.RUNNING:
            raise not_running(sandbox)
        self._ledger.freezing.add(sandbox.id)
        try:
            with anyio.CancelScope(shield=True):
                await self._node.sandbox_standby(sandbox.id)
                try:
                    sandbox = await self._advance(sandbox, Trigger.FROZEN, by=by, sleep=why)
                except BaseException:
                    await self._node.sandbox_wake(sandbox.id)  # on record it runs, and so it must
                    raise
        finally:
            self._ledger.freezing.discard(sandbox.id)
        return sandbox

    async def pause(self, principal: Principal, reference: str, *, memory: bool = True) -> Sandbox:
        """Put a sandbox on disk; one that is paused stays so."""
        sandbox = await self._ledger.find(principal.owner, reference)
        async with self.exclusive.turn(sandbox.id):
            sandbox = await self._ledger.find(principal.owner, sandbox.id)
            return sandbox if sandbox.state is State.PAUSED else await self._pause(sandbox, principal, memory=memory)

    async def _pause(
        self,
        sandbox: Sandbox,
        by: Principal | None,
        *,
        memory: bool = True,
        why: SleepReason = SleepReason.ASKED,
    ) -> Sandbox:
        if sandbox.state not in (State.RUNNING, State.STANDBY):
            raise not_running(sandbox)
        with anyio.CancelScope(shield=True):
            sandbox = await self._has_become(sandbox, Trigger.PAUSE_ASKED, by=by, sleep=why)
            if sandbox.state is not State.PAUSING:
                raise not_running(sandbox)
            try:
                await self._metering.last(sandbox.id)
                await self._node.sandbox_pause(sandbox.id, memory=memory)
            except BaseException:
                await self._came_to_nothing(sandbox, Trigger.PAUSE_FAILED)
                raise
            paused = await self._has_become(sandbox, Trigger.PAUSED, by=by)
        if paused.state is not State.PAUSED:
            raise not_running(paused)
        return paused

    def paused_with_memory(self, sandbox: Sandbox) -> bool | None:
        """Whether a paused sandbox has its memory beside its disk; None if it is not paused."""
        return self._node.paused_with_memory(sandbox.id) if sandbox.state is State.PAUSED else None

    async def resume(
        self, principal: Principal, reference: str, timeout_s: float | None = None, *, memory: bool = True
    ) -> Sandbox:
        """Wake a sandbox that sleeps, with a deadline from now on; one that runs is returned as it is.

        Without `memory` one that is paused boots from its disk.
        """
        if timeout_s is not None:
            check_timeout(timeout_s)
        sandbox = await self._ledger.find(principal.owner, reference)
        async with self.exclusive.turn(sandbox.id):
            sandbox = await self._ledger.find(principal.owner, sandbox.id)
            return await self._resume(sandbox, principal, timeout_s, memory=memory)

    async def awake(self, sandbox: Sandbox) -> Sandbox:
        """The sandbox, running: a call or a connection has come for it. Conflict (not_running) if it may not wake."""
        if sandbox.state is State.PAUSED and not sandbox.auto_resume:
            raise not_running(sandbox)
        async with self.exclusive.turn(sandbox.id):
            record = await self._ledger.record(sandbox.id)
            sandbox = record.sandbox if record else sandbox
            if sandbox.state is State.PAUSED and not sandbox.auto_resume:  # by now
                raise not_running(sandbox)
            return await self._resume(sandbox, None, None, asleep=True)

    async def _resume(
        self,
        sandbox: Sandbox,
        by: Principal | None,
        timeout_s: float | None,
        *,
        asleep: bool = False,
        memory: bool = True,
    ) -> Sandbox:
        if sandbox.state in SLEEPING:
            await self._metering.check_budget(sandbox)
        if sandbox.state is State.PAUSED:
            return await self._restore(sandbox, by, replace(order_of(sandbox), memory=memory), timeout_s)
        if sandbox.state not in (State.RUNNING, State.STANDBY):
            raise not_running(sandbox)
        with anyio.CancelScope(shield=True):
            if asleep or sandbox.state is State.STANDBY:
                await self._node.sandbox_wake(sandbox.id)
            if sandbox.state is State.STANDBY:
                sandbox = await self._thawed(sandbox, by, timeout_s)
        return sandbox

    async def _thawed(self, sandbox: Sandbox, by: Principal | None, timeout_s: float | None) -> Sandbox:
        renewed = timeout_s is not None or sandbox.on_deadline is DeadlineAction.STANDBY
        lasts = _lasts(sandbox, timeout_s) if renewed else None
        sandbox = await self._advance(sandbox, Trigger.THAWED, lasts=lasts, by=by)
        self._deadlines.note_running(sandbox)
        self._metering.note_awake(sandbox.budget)
        return sandbox

    async def stand_still_again(self, sandbox: Sandbox) -> None:
        """After one in standby had to go on for a moment: it is in standby as before, its memory on its way to swap.

        If that fails it runs, and says so on record. Its turn is the caller's, and so is whatever else it was about.
        """
        try:
            await self._node.sandbox_standby(sandbox.id)
        except NotFound:
            return  # it has ended meanwhile
        except AtollError as error:
            log.error("sandbox_stays_awake", sandbox_id=sandbox.id, error=repr(error))
            try:
                await self._thawed(sandbox, None, None)
            except AtollError as later:  # as one that sleeps on record it is woken by the next who calls it
                log.error("sandbox_awake_unheard", sandbox_id=sandbox.id, error=repr(later))

    async def _restore(
        self, sandbox: Sandbox, by: Principal | None, order: SandboxOrder, timeout_s: float | None
    ) -> Sandbox:
        with anyio.CancelScope(shield=True):
            sandbox = await self._has_become(sandbox, Trigger.RESUME_ASKED, by=by)
            if sandbox.state is not State.RESUMING:
                raise not_running(sandbox)
            try:
                async with self._attempts.begun(sandbox.id):
                    await self._node.sandbox_resume(order)
            except BaseException:
                await self._came_to_nothing(sandbox, Trigger.RESUME_FAILED)
                raise
            running = await self._has_become(sandbox, Trigger.RESUMED, lasts=_lasts(sandbox, timeout_s), by=by)
        if running.state is not State.RUNNING:
            raise not_running(running)
        self._deadlines.note_running(running)
        self._metering.look_again()  # of its own budget and its tenant's
        return running

    async def rollback(self, principal: Principal, reference: str, snapshot: Snapshot) -> Sandbox:
        """Take a sandbox back to an earlier snapshot of itself. What it was until now is gone."""
        sandbox = await self._ledger.find(principal.owner, reference)
        if snapshot.sandbox_id != sandbox.id:
            raise InvalidArgument(
                "this snapshot is of another sandbox",
                code="other_sandbox",
                hint="A sandbox goes back to its own snapshots; create a new one from this.",
            )
        async with self.exclusive.turn(sandbox.id):
            sandbox = await self._ledger.find(principal.owner, sandbox.id)
            order = replace(order_of(sandbox), image=snapshot.id)
            if sandbox.state is State.PAUSED:
                await self._metering.check_budget(sandbox)
                return await self._restore(sandbox, principal, order, None)
            sandbox = await self._resume(sandbox, principal, None)
            with anyio.CancelScope(shield=True):
                async with self._metering.renewing(sandbox.id):
                    await self._node.sandbox_rollback(order)
            return await self._ledger.find(principal.owner, sandbox.id)

    async def put_to_sleep(self, sandbox_id: str, action: DeadlineAction, why: SleepReason) -> None:
        """Stop a sandbox in a way that does not kill. If it fails the sandbox goes on, and it is tried again later."""
        if (sandbox_id, why) in self._dozing:
            return
        self._dozing.add((sandbox_id, why))
        try:
            await self._put_to_sleep(sandbox_id, action, why)
            return
        except Exception as error:  # nobody waits for this, and whatever it is, the sandbox and the server go on
            log.error("sandbox_stays_awake", sandbox_id=sandbox_id, error=repr(error))
            # Until then it counts as being put to sleep. That is kept here: what failed may be the database.
            later = self._clock.now() + timedelta(seconds=limits.SLEEP_RETRY_S)
            await self._clock.wait_until(later, anyio.Event())
        finally:
            self._dozing.discard((sandbox_id, why))
        self._deadlines.look_again()
        self._metering.look_again()

    async def _put_to_sleep(self, sandbox_id: str, action: DeadlineAction, why: SleepReason) -> None:
        async with self.exclusive.turn(sandbox_id):
            record = await self._ledger.record(sandbox_id)
            if record is None or not await self._is_due(record.sandbox, why):
                return
            sandbox = record.sandbox
            pauses = action in (DeadlineAction.PAUSE, DeadlineAction.PAUSE_DISK)
            if pauses and sandbox.state in (State.RUNNING, State.STANDBY):
                await self._pause(sandbox, None, memory=action is DeadlineAction.PAUSE, why=why)
            elif action is DeadlineAction.STANDBY and sandbox.state is State.RUNNING:
                await self._freeze(sandbox, None, why)

    async def _is_due(self, sandbox: Sandbox, why: SleepReason) -> bool:
        """Whether a sandbox is to sleep still: its turn may have been long in coming."""
        if sandbox.state not in (State.RUNNING, State.STANDBY):
            return False
        if why is SleepReason.DEADLINE:
            await self._metering.jumps.settle()
            record = await self._ledger.record(sandbox.id)
            return record is not None and record.sandbox.deadline_at <= self._clock.now()
        if why is SleepReason.IDLE:
            bound_s = sandbox.idle_timeout_s
            return bound_s is not None and await self._node.idle_s(sandbox.id, bound_s) >= bound_s
        try:
            await self._metering.check_budget(sandbox)
        except LimitExceeded:
            return True
        return sandbox.state is State.STANDBY  # which is woken without a look at its budget

    async def _has_become(
        self,
        sandbox: Sandbox,
        trigger: Trigger,
        *,
        lasts: timedelta | None = None,
        by: Principal | None = None,
        sleep: SleepReason | None = None,
    ) -> Sandbox:
        """Write down what is true on the node already, or is wished. If that fails, what is true is as soon as it can.

        A write that failed may have come about all the same, so a wish that was not heard is looked after, too.
        """
        try:
            return await self._advance(sandbox, trigger, lasts=lasts, by=by, sleep=sleep)
        except Unavailable:
            self._unsettled[sandbox.id] = self._clock.now()
            self._more_unsettled.set()
            raise

    async def _came_to_nothing(self, sandbox: Sandbox, trigger: Trigger) -> None:
        """The same of what failed. Why it did is what its caller hears, whatever becomes of the record."""
        try:
            known = await self._has_become(sandbox, trigger)
        except AtollError as error:
            log.warning("state_written_later", sandbox_id=sandbox.id, error=repr(error))
        else:
            self._note_running(known)

    async def settle_step(self) -> None:
        """Write down what could not be; then wait for more of it. An error is a reason to try again."""
        self._more_unsettled = anyio.Event()
        for sandbox_id in sorted(self._unsettled):
            async with self.exclusive.turn(sandbox_id):
                await self._settle(sandbox_id)
            self._unsettled.pop(sandbox_id, None)
        await self._more_unsettled.wait()

    async def _settle(self, sandbox_id: str) -> None:
        record = await self._ledger.record(sandbox_id)
        if record is None:
            return
        sandbox = record.sandbox
        paused = sandbox_id in self._node.paused_ids()
        for note in settled(sandbox.state, sandbox_id in self._node.sandbox_ids(), paused):
            woken = note.trigger is Trigger.RESUMED
            # It has used nothing since it was paused, however late that is written down.
            used = Reading(None, self._unsettled[sandbox_id]) if note.trigger is Trigger.PAUSED else None
            lasts = _lasts(sandbox, None) if woken else None
            sandbox = await self._advance(sandbox, note.trigger, lasts=lasts, reading=used)
        self._note_running(sandbox)

    def _note_running(self, sandbox: Sandbox) -> None:
        """It may run again: its deadline, which may have passed meanwhile, and its budget count from here on."""
        if sandbox.state is State.RUNNING:
            self._deadlines.note_running(sandbox)
            self._metering.look_again()

    async def _advance(
        self,
        sandbox: Sandbox,
        trigger: Trigger,
        *,
        lasts: timedelta | None = None,
        by: Principal | None = None,
        sleep: SleepReason | None = None,
        reading: Reading | None = None,
    ) -> Sandbox:
        deadline_at: datetime | None = None
        if lasts is not None:
            await self._metering.jumps.settle()
            deadline_at = self._clock.now() + lasts
        note = Note(trigger, sleep=sleep)
        known = await self._ledger.advance(sandbox.id, note, deadline_at=deadline_at, by=by, reading=reading)
        if known is None:
            raise NotFound("the sandbox is not on record any more", code="sandbox_not_found")
        return known


def _lasts(sandbox: Sandbox, timeout_s: float | None) -> timedelta:
    """How far away the deadline of one that wakes is."""
    return check_timeout(sandbox.timeout_s if timeout_s is None else timeout_s)


def order_of(sandbox: Sandbox) -> SandboxOrder:
    """What the node is told of a sandbox that it shall make again. Its environment is in its image."""
    return SandboxOrder(
        sandbox_id=sandbox.id,
        template=sandbox.template,
        resources=sandbox.resources,
        hostname=hostname_of(sandbox),
        volumes=sandbox.volumes,
    )
