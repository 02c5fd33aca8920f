"""The record of each sandbox: read, and moved along the lifecycle one trigger at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from atoll.control.authz import Principal
from atoll.control.clock import Clock
from atoll.control.events import Events
from atoll.control.reconcile import Note
from atoll.control.store import creates, startlogs, usage
from atoll.control.store import events as event_rows
from atoll.control.store import sandboxes as rows
from atoll.control.store.creates import CLOSED, Allowance, Once, Openings
from atoll.control.store.engine import Store
from atoll.control.store.sandboxes import Filter, Position, Record
from atoll.control.store.usage import Reading
from atoll.model import ids, lifecycle, limits
from atoll.model.errors import NotFound
from atoll.model.event import Event
from atoll.model.lifecycle import ASLEEP, FINAL, State
from atoll.model.sandbox import EXTERNAL_ID, Budget, DeadlineAction, Sandbox
from atoll.model.text import cleaned
from atoll.telemetry import Metrics

Still = Callable[[Connection], bool]
"""Whether there still is a reason for a step, asked in the transaction that makes it."""


class Ledger:
    """What is known about sandboxes. Every change of state in the product goes through `advance`.

    Live sandboxes are also kept in memory, because every command asks for one. The memory follows each write at once,
    and the compare-and-set in the database decides where the two should differ.
    """

    def __init__(self, store: Store, clock: Clock, metrics: Metrics, events: Events) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._events = events
        self._live: dict[str, Record] = {}
        self.freezing: set[str] = set()
        """Those that may stand still on the node already, and are not on record as such yet."""

    async def add(
        self,
        by: Principal,
        sandbox: Sandbox,
        allowance: Allowance,
        once: Once | None = None,
        openings: Openings = CLOSED,
    ) -> Sandbox | None:
        """Put a new sandbox on record; or give back the one that was made with the same key before."""
        record = Record(by.owner, sandbox, by.key_id)
        event = self._events.of(
            by, f"sandbox.{sandbox.state}", target=sandbox.id, detail={"template": sandbox.template}
        )
        earlier = await self._store.write(creates.create, record, event, allowance, once, openings)
        if earlier is not None:
            return earlier.sandbox
        self._remember(record)
        self._events.written()
        return None

    async def find(self, owner: str, reference: str) -> Sandbox:
        """A sandbox by its id or its owner's id for it, or a live one by its name.

        One of another owner is as if it did not exist.
        """
        record = self._live.get(reference)
        if record is None and ids.is_id(ids.SANDBOX, reference):
            record = await self._store.read(rows.by_id, reference)
        elif record is None and EXTERNAL_ID.fullmatch(reference):
            record = await self._store.read(_by_own_words, owner, reference)
        if record is None or record.owner != owner:
            raise NotFound(
                f"there is no sandbox {reference[:80]!r}",
                code="sandbox_not_found",
                hint="List the sandboxes to see those there are; a name is only valid while its sandbox lives.",
            )
        return record.sandbox

    async def record(self, sandbox_id: str) -> Record | None:
        """A sandbox of any owner, with its owner: for callers who show another right than an owner's key."""
        return self._live.get(sandbox_id) or await self._store.read(rows.by_id, sandbox_id)

    async def page(self, wanted: Filter, after: Position | None, items_max: int) -> list[Sandbox]:
        return [record.sandbox for record in await self._store.read(rows.page, wanted, after, items_max)]

    async def load(self) -> list[Sandbox]:
        """Every sandbox that has not ended, remembered: at the start, while nothing can end."""
        for record in await self._store.read(rows.live):
            self._live[record.sandbox.id] = record
        return [record.sandbox for record in self._live.values()]

    async def live(self, owner: str | None = None) -> list[Sandbox]:
        """Every sandbox, of one owner or of any, that has not ended, as it was at some moment of the call."""
        records = await self._store.read(rows.live)
        return [record.sandbox for record in records if owner in (None, record.owner)]

    async def count(self, wanted: Filter) -> int:
        return await self._store.read(rows.count, wanted)

    def in_standby(self, sandbox_id: str) -> bool:
        """From memory: for a look that is taken with every piece of a stream. One that is just being put there is."""
        record = self._live.get(sandbox_id)
        return sandbox_id in self.freezing or (record is not None and record.sandbox.state is State.STANDBY)

    def live_ids(self) -> list[str]:
        """The ids of those that have not ended, from memory: for a look at all of them that must cost little."""
        return list(self._live)

    async def overdue(self, now: datetime) -> list[str]:
        return await self._store.read(rows.overdue, now)

    async def next_deadline(self, after: datetime | None = None) -> datetime | None:
        return await self._store.read(rows.next_deadline, after)

    def idle_watched(self) -> list[Sandbox]:
        """The running sandboxes that have a bound on how long they may be idle."""
        found = (record.sandbox for record in self._live.values())
        return [one for one in found if one.idle_timeout_s is not None and one.state is State.RUNNING]

    async def count_by_state(self, owner: str | None = None) -> dict[State, int]:
        counts = await self._store.read(rows.count_by_state, owner)
        return {state: counts.get(state, 0) for state in State}

    async def set_deadline(
        self, sandbox_id: str, deadline_at: datetime, by: Principal | None = None, *, only_later: bool = False
    ) -> datetime | None:
        """Move the deadline of a sandbox that has one now, running or in standby; where it is then, None if nowhere."""
        known = self._live.get(sandbox_id)
        template = known.sandbox.template if known else ""
        detail = {"deadline_at": deadline_at.isoformat(), "template": template}
        event = self._events.of(by, "sandbox.deadline", target=sandbox_id, detail=detail)
        found = await self._store.write(_set_deadline, sandbox_id, deadline_at, event if by else None, only_later)
        self._events.written()
        record = self._live.get(sandbox_id)
        if found is not None and record is not None:
            self._remember(replace(record, sandbox=replace(record.sandbox, deadline_at=found)))
        return found

    async def set_budget(self, sandbox: Sandbox, budget: Budget, action: DeadlineAction, by: Principal) -> Sandbox:
        """Give a sandbox that has not ended another budget; what is known then."""
        event = self._events.of(
            by, "sandbox.budget", target=sandbox.id, detail={**_words(budget), "on_budget": action.value}
        )
        await self._store.write(_set_budget, sandbox.id, budget, action, event)
        self._events.written()
        record = self._live.get(sandbox.id)
        if record is not None:
            self._remember(replace(record, sandbox=replace(record.sandbox, budget=budget, on_budget=action)))
        return await self.find(by.owner, sandbox.id)

    def clock_moved(self, by: timedelta) -> None:
        """All deadlines have been moved in the database."""
        for record in list(self._live.values()):
            sandbox = replace(record.sandbox, deadline_at=record.sandbox.deadline_at + by)
            self._live[sandbox.id] = replace(record, sandbox=sandbox)

    async def keep_start_log(self, sandbox_id: str, log: str) -> None:
        """Keep how a start went that failed."""
        await self._store.write(startlogs.put, sandbox_id, cleaned(log, limits.START_LOG_CHARS_MAX))

    async def start_log(self, sandbox: Sandbox) -> str:
        return await self._store.read(startlogs.get, sandbox.id)

    async def advance(
        self,
        sandbox_id: str,
        note: Note,
        *,
        deadline_at: datetime | None = None,
        by: Principal | None = None,
        reading: Reading | None = None,
        still: Still | None = None,
    ) -> Sandbox | None:
        """Write what happened on record and return what is known then.

        A trigger that has no meaning in the present state (a second kill, a death after the end) changes nothing. The
        first reason that is given for an end stays. With a reading, what the sandbox has used is counted up to that,
        and its meter is closed, together with the step if there is one. With `still`, nothing changes either unless
        that is so at the moment of the write.
        """
        record = self._live.get(sandbox_id)
        while True:
            record = record or await self._store.read(rows.by_id, sandbox_id)
            before = record.sandbox if record else None
            after = self._after(before, note, deadline_at) if before else None
            if record is None or after is None or after == before:
                if reading is not None:
                    await self._store.write(usage.close_meter, sandbox_id, reading)
                return before
            moved = await self._store.write(_move, record, after, self._event(record, after, note, by), reading, still)
            if moved is None:
                return (self._live.get(sandbox_id) or record).sandbox
            if moved:
                break
            # What was in memory is no longer so: somebody here was faster, and says so there, or the database knows.
            record = known if (known := self._live.get(sandbox_id)) is not record else None
        after = self._merged(record.sandbox, after)
        self._remember(replace(record, sandbox=after))
        self._events.written()
        if after.state in FINAL:
            self._metrics.sandbox_ends.labels(after.end_reason or "").inc()
        return after

    def _event(self, record: Record, after: Sandbox, note: Note, by: Principal | None) -> Event:
        reason = after.end_reason or after.sleep_reason or ""
        detail = {"trigger": note.trigger.value, "reason": reason, "detail": after.end_detail}
        detail["template"] = after.template
        return self._events.of(by, f"sandbox.{after.state}", owner=record.owner, target=after.id, detail=detail)

    def _merged(self, before: Sandbox, after: Sandbox) -> Sandbox:
        """What a step has made of a sandbox whose deadline or budget may have been changed while it was written."""
        known = self._live.get(after.id)
        if known is None or known.sandbox is before:
            return after
        old, new = ({name: getattr(one, name) for name in _LIFECYCLE} for one in (before, after))
        return replace(known.sandbox, **{name: value for name, value in new.items() if value != old[name]})

    def _remember(self, record: Record) -> None:
        if record.sandbox.state in FINAL:
            self._live.pop(record.sandbox.id, None)
        else:
            self._live[record.sandbox.id] = record

    def _after(self, sandbox: Sandbox, note: Note, deadline_at: datetime | None) -> Sandbox:
        """What a sandbox is when this has happened; the same if it means nothing in its state."""
        if not lifecycle.may(sandbox.state, note.trigger):
            return sandbox
        now = self._clock.now()
        state = lifecycle.advance(sandbox.state, note.trigger)
        if state is State.RUNNING:
            started_at = sandbox.started_at or now
            sandbox = replace(sandbox, started_at=started_at, deadline_at=deadline_at or sandbox.deadline_at)
        if note.reason is not None and sandbox.end_reason is None:
            detail = cleaned(note.detail, limits.END_DETAIL_CHARS_MAX)
            sandbox = replace(sandbox, end_reason=note.reason, end_detail=detail)
        if state in FINAL:
            sandbox = replace(sandbox, ended_at=now)
        sleep_reason = (note.sleep or sandbox.sleep_reason) if state in ASLEEP else None
        if sleep_reason is not sandbox.sleep_reason:
            sandbox = replace(sandbox, sleep_reason=sleep_reason)
        return replace(sandbox, state=state)


def _move(
    connection: Connection,
    record: Record,
    after: Sandbox,
    event: Event,
    reading: Reading | None = None,
    still: Still | None = None,
) -> bool | None:
    """A step of the lifecycle, its event, and the meter of a sandbox that begins or ends: all or nothing.

    Says whether the sandbox was where it was thought to be; None if the reason for the step has gone.
    """
    before = record.sandbox
    if still is not None and not still(connection):
        return None
    if not rows.move(connection, before.id, before.state, after.state, _changes(before, after)):
        return False
    if after.state is not before.state:
        event_rows.add(connection, event)
    if after.state is State.RUNNING and before.state is not State.RUNNING:
        again = before.state is not State.CREATING
        usage.open_meter(connection, after.id, record.owner, event.at, again=again)
    elif after.state is State.PAUSED:
        reading = reading or Reading(None, event.at)
    if reading is not None:
        usage.close_meter(connection, after.id, reading)
    return True


def _set_deadline(
    connection: Connection,
    sandbox_id: str,
    deadline_at: datetime,
    event: Event | None,
    only_later: bool,
) -> datetime | None:
    found = rows.set_deadline(connection, sandbox_id, deadline_at, only_later=only_later)
    if found == deadline_at and event is not None:
        event_rows.add(connection, event)
    return found


def _set_budget(connection: Connection, sandbox_id: str, budget: Budget, action: DeadlineAction, event: Event) -> None:
    if rows.set_budget(connection, sandbox_id, budget, action):
        event_rows.add(connection, event)


def _words(budget: Budget) -> dict[str, str]:
    amounts = {"seconds": budget.seconds, "money": budget.money}
    return {name: f"{amount:g}" for name, amount in amounts.items() if amount is not None}


def _by_own_words(connection: Connection, owner: str, reference: str) -> Record | None:
    if len(reference) <= limits.NAME_CHARS_MAX:
        named = rows.by_live_name(connection, owner, reference)
        if named is not None:
            return named
    return rows.by_external_id(connection, owner, reference)


def _changes(before: Sandbox, after: Sandbox) -> dict[str, Any]:
    """The columns that differ; what a step does not touch may have been changed by another caller meanwhile."""
    old, new = (rows.lifecycle_columns(sandbox) for sandbox in (before, after))
    return {name: value for name, value in new.items() if value != old[name]}


_LIFECYCLE = ("state", "started_at", "deadline_at", "ended_at", "end_reason", "end_detail", "sleep_reason")
"""What a step may change of a sandbox; the same as `rows.lifecycle_columns`, and the state."""
