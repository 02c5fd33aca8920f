"""The record of each sandbox: read, and moved along the lifecycle one trigger at a time."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from atoll.control.clock import Clock
from atoll.control.reconcile import Note
from atoll.control.store import sandboxes as rows
from atoll.control.store.engine import Store
from atoll.control.store.sandboxes import Filter, Position, Record
from atoll.model import ids, lifecycle, limits
from atoll.model.errors import NotFound
from atoll.model.lifecycle import FINAL, State, Trigger
from atoll.model.sandbox import Sandbox
from atoll.telemetry import Metrics


class Ledger:
    """What is known about sandboxes. Every change of state in the product goes through `advance`.

    Live sandboxes are also kept in memory, because every command asks for one. The memory follows each write at once,
    and the compare-and-set in the database decides where the two should differ.
    """

    def __init__(self, store: Store, clock: Clock, metrics: Metrics) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._live: dict[str, Record] = {}

    async def add(self, owner: str, sandbox: Sandbox) -> None:
        record = Record(owner, sandbox)
        await self._store.write(rows.add, record)
        self._remember(record)

    async def find(self, owner: str, reference: str) -> Sandbox:
        """A sandbox by its id, or a live one by its name; of another owner it is as if it did not exist."""
        record = self._live.get(reference)
        if record is None:
            if ids.is_id(ids.SANDBOX, reference):
                record = await self._store.read(rows.by_id, reference)
            elif len(reference) <= limits.NAME_CHARS_MAX:
                record = await self._store.read(rows.by_live_name, owner, reference)
        if record is None or record.owner != owner:
            raise NotFound(
                f"there is no sandbox {reference[:80]!r}",
                code="sandbox_not_found",
                hint="List the sandboxes to see those there are; a name is only valid while its sandbox lives.",
            )
        return record.sandbox

    async def page(self, wanted: Filter, after: Position | None, items_max: int) -> list[Sandbox]:
        return [record.sandbox for record in await self._store.read(rows.page, wanted, after, items_max)]

    async def live(self) -> list[Sandbox]:
        """Every sandbox, of any owner, that has not ended."""
        records = await self._store.read(rows.live)
        for record in records:
            self._live.setdefault(record.sandbox.id, record)
        return [record.sandbox for record in records]

    async def overdue(self, now: datetime) -> list[str]:
        return await self._store.read(rows.overdue, now)

    async def next_deadline(self) -> datetime | None:
        return await self._store.read(rows.next_deadline)

    async def count_by_state(self) -> dict[State, int]:
        counts = await self._store.read(rows.count_by_state)
        return {state: counts.get(state, 0) for state in State}

    async def set_deadline(self, sandbox_id: str, deadline_at: datetime) -> bool:
        """Move the deadline of a running sandbox; says whether it was running."""
        running = await self._store.write(rows.set_deadline, sandbox_id, deadline_at)
        record = self._live.get(sandbox_id)
        if running and record is not None:
            self._remember(replace(record, sandbox=replace(record.sandbox, deadline_at=deadline_at)))
        return running

    async def advance(self, sandbox_id: str, note: Note, *, deadline_at: datetime | None = None) -> Sandbox | None:
        """Write what happened on record and return what is known then.

        A trigger that has no meaning in the present state (a second kill, a death after the end) changes nothing. The
        first reason that is given for an end stays.
        """
        record = self._live.get(sandbox_id)
        while True:
            record = record or await self._store.read(rows.by_id, sandbox_id)
            if record is None or not lifecycle.may(record.sandbox.state, note.trigger):
                return record.sandbox if record else None
            before = record.sandbox
            after = self._after(before, note, deadline_at)
            if after == before:
                return before
            if await self._store.write(rows.move, sandbox_id, before.state, after.state, _changes(before, after)):
                break
            record = None  # what was in memory is no longer so: ask the database
        self._remember(replace(record, sandbox=after))
        if after.state in FINAL:
            self._metrics.sandbox_ends.labels(after.end_reason or "").inc()
        return after

    def _remember(self, record: Record) -> None:
        if record.sandbox.state in FINAL:
            self._live.pop(record.sandbox.id, None)
        else:
            self._live[record.sandbox.id] = record

    def _after(self, sandbox: Sandbox, note: Note, deadline_at: datetime | None) -> Sandbox:
        now = self._clock.now()
        state = lifecycle.advance(sandbox.state, note.trigger)
        if note.trigger is Trigger.STARTED and state is State.RUNNING:
            sandbox = replace(sandbox, started_at=now, deadline_at=deadline_at or sandbox.deadline_at)
        if note.reason is not None and sandbox.end_reason is None:
            detail = note.detail[: limits.END_DETAIL_CHARS_MAX]
            sandbox = replace(sandbox, end_reason=note.reason, end_detail=detail)
        if state in FINAL:
            sandbox = replace(sandbox, ended_at=now)
        return replace(sandbox, state=state)


def _changes(before: Sandbox, after: Sandbox) -> dict[str, Any]:
    """The columns that differ; what a step does not touch may have been changed by another caller meanwhile."""
    old, new = (rows.lifecycle_columns(sandbox) for sandbox in (before, after))
    return {name: value for name, value in new.items() if value != old[name]}
