"""Named queries about sandboxes; rows become `Record`s and back.

States change by compare-and-set: `move` names the state it comes from, and of two callers only one finds it there.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, bindparam, func, insert, or_, select, tuple_, update
from sqlalchemy.exc import IntegrityError

from atoll.control.store.moments import from_us, to_us
from atoll.control.store.prepared import Prepared, adding
from atoll.control.store.schema import sandbox_metadata, sandboxes, snapshots
from atoll.model import ids
from atoll.model.errors import Conflict
from atoll.model.lifecycle import EndReason, SleepReason, State
from atoll.model.resources import Resources
from atoll.model.sandbox import Budget, DeadlineAction, Sandbox
from atoll.model.snapshot import SnapshotState
from atoll.model.volume import VolumeMount


@dataclass(frozen=True, slots=True)
class Record:
    """A sandbox and whose it is."""

    owner: str
    sandbox: Sandbox
    key_id: str = ""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which sandboxes a list shows; what is None or empty does not filter."""

    owner: str
    states: tuple[State, ...] = ()
    template: str | None = None
    name: str | None = None
    metadata: Mapping[str, str] | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    template_alone: bool = False
    """Whether what was made from a snapshot that there still is is of the snapshot, and not of the template too."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the order newest first, between two sandboxes; stable while others come and go."""

    created_us: int
    sandbox_id: str


def add(connection: Connection, record: Record) -> None:
    """Put a new sandbox on record; Conflict if a live one of this owner has its name, or any its external id."""
    sandbox = record.sandbox
    try:
        _ADD.change(connection, _to_row(record))
    except IntegrityError as error:
        if "external" in str(error.orig):
            raise Conflict(
                f"there is a sandbox with the id {sandbox.external_id!r}, or was one",
                code="id_taken",
                hint="An id is used once; connect to the sandbox that has it, or choose another.",
            ) from error
        raise Conflict(
            f"a live sandbox is already named {sandbox.name!r}",
            code="name_taken",
            hint="Choose another name, or kill the sandbox that has it.",
        ) from error
    if sandbox.metadata:
        entries = [{"sandbox_id": sandbox.id, "key": key, "value": value} for key, value in sandbox.metadata.items()]
        connection.execute(_ADD_METADATA, entries)


def by_id(connection: Connection, sandbox_id: str) -> Record | None:
    row = connection.execute(_BY_ID, {"sandbox_id": sandbox_id}).one_or_none()
    return _from_row(row) if row else None


def by_live_name(connection: Connection, owner: str, name: str) -> Record | None:
    row = connection.execute(_BY_LIVE_NAME, {"owner": owner, "name": name}).one_or_none()
    return _from_row(row) if row else None


def by_external_id(connection: Connection, owner: str, external_id: str) -> Record | None:
    row = connection.execute(_BY_EXTERNAL_ID, {"owner": owner, "external_id": external_id}).one_or_none()
    return _from_row(row) if row else None


def live(connection: Connection) -> list[Record]:
    """Every sandbox, of any owner, that has not ended."""
    rows = connection.execute(select(sandboxes).where(sandboxes.c.ended_us.is_(None)))
    return [_from_row(row) for row in rows]


def page(connection: Connection, wanted: Filter, after: Position | None, items_max: int) -> list[Record]:
    """The newest sandboxes that come after a position."""
    rows = connection.execute(_page_query(wanted, after).limit(items_max))
    return [_from_row(row) for row in rows]


def count(connection: Connection, wanted: Filter) -> int:
    """How many there are in all."""
    matching = _page_query(wanted, None).order_by(None).subquery()
    return connection.execute(select(func.count()).select_from(matching)).scalar_one()


def overdue(connection: Connection, now: datetime) -> list[str]:
    """Running sandboxes whose deadline has come."""
    rows = connection.execute(_OVERDUE, {"now_us": to_us(now)})
    return [row.id for row in rows]


def is_overdue(connection: Connection, sandbox_id: str, now: datetime) -> bool:
    """The same of one: whether its deadline has come, and was not moved meanwhile."""
    return connection.execute(_OVERDUE.where(sandboxes.c.id == sandbox_id), {"now_us": to_us(now)}).first() is not None


def next_deadline(connection: Connection, after: datetime | None = None) -> datetime | None:
    """The earliest deadline of a running sandbox, or the earliest after a moment."""
    after_us = -1 if after is None else to_us(after)
    value = connection.execute(_NEXT_DEADLINE, {"after_us": after_us}).scalar_one_or_none()
    return None if value is None else from_us(value)


def count_by_state(connection: Connection, owner: str | None = None) -> dict[State, int]:
    """How many are in each state, of one owner or of all."""
    query = select(sandboxes.c.state, func.count()).group_by(sandboxes.c.state)
    rows = connection.execute(query if owner is None else query.where(sandboxes.c.owner == owner))
    return {State(state): count for state, count in rows}


def move(connection: Connection, sandbox_id: str, source: State, target: State, changes: Mapping[str, Any]) -> bool:
    """Change the state if it still is `source`; says whether it was."""
    known = {"moved_id": sandbox_id, "source": source.value, "state": target.value}
    return _move(tuple(sorted(changes))).change(connection, {**known, **changes}) == 1


@functools.cache
def _move(columns: tuple[str, ...]) -> Prepared:
    """The statement that changes these columns together with the state; there are as many as kinds of steps."""
    return Prepared(
        update(sandboxes)
        .where(sandboxes.c.id == bindparam("moved_id"), sandboxes.c.state == bindparam("source"))
        .values({name: bindparam(name) for name in ("state", *columns)})
    )


def set_deadline(
    connection: Connection, sandbox_id: str, deadline_at: datetime, *, only_later: bool = False
) -> datetime | None:
    """Move the deadline of a sandbox that has one now; where it is then, None if there is none."""
    wanted = and_(sandboxes.c.id == sandbox_id, _RUNNING)
    earlier = sandboxes.c.deadline_us < to_us(deadline_at)
    statement = update(sandboxes).where(and_(wanted, earlier) if only_later else wanted)
    if connection.execute(statement.values(deadline_us=to_us(deadline_at))).rowcount == 1:
        return deadline_at
    left = connection.execute(select(sandboxes.c.deadline_us).where(wanted)).scalar_one_or_none()
    return None if left is None else from_us(left)


def shift_deadlines(connection: Connection, by: timedelta) -> None:
    """Move the deadlines of all that have not ended."""
    moved = sandboxes.c.deadline_us + round(by.total_seconds() * 1_000_000)
    connection.execute(update(sandboxes).where(sandboxes.c.ended_us.is_(None)).values(deadline_us=moved))


def set_budget(connection: Connection, sandbox_id: str, budget: Budget, action: DeadlineAction) -> bool:
    """Change the budget of a sandbox that has not ended; says whether it had not."""
    statement = (
        update(sandboxes)
        .where(sandboxes.c.id == sandbox_id, sandboxes.c.ended_us.is_(None))
        .values(budget_s=budget.seconds, budget_money=budget.money, budget_action=action.value)
    )
    return connection.execute(statement).rowcount == 1


def _page_query(wanted: Filter, after: Position | None) -> Select[Any]:
    query = select(sandboxes).where(sandboxes.c.owner == wanted.owner)
    if wanted.states:
        query = query.where(sandboxes.c.state.in_([state.value for state in wanted.states]))
    if wanted.template is not None:
        # A snapshot stands where a template could, and is on record beside the one that it was taken of.
        column = sandboxes.c.snapshot_id if ids.is_id(ids.SNAPSHOT, wanted.template) else sandboxes.c.template
        query = query.where(column == wanted.template)
        if wanted.template_alone and column is sandboxes.c.template:
            made_from = select(snapshots.c.id).where(
                snapshots.c.id == sandboxes.c.snapshot_id, snapshots.c.state == SnapshotState.READY.value
            )
            query = query.where(~made_from.exists())
    if wanted.name is not None:
        query = query.where(sandboxes.c.name == wanted.name)
    if wanted.created_after is not None:
        query = query.where(sandboxes.c.created_us >= to_us(wanted.created_after))
    if wanted.created_before is not None:
        query = query.where(sandboxes.c.created_us < to_us(wanted.created_before))
    for key, value in (wanted.metadata or {}).items():
        entry = sandbox_metadata.c
        query = query.where(
            select(entry.sandbox_id)
            .where(entry.sandbox_id == sandboxes.c.id, entry.key == key, entry.value == value)
            .exists()
        )
    if after is not None:
        query = query.where(tuple_(sandboxes.c.created_us, sandboxes.c.id) < (after.created_us, after.sandbox_id))
    return query.order_by(sandboxes.c.created_us.desc(), sandboxes.c.id.desc())


def _to_row(record: Record) -> dict[str, Any]:
    sandbox = record.sandbox
    return {
        "id": sandbox.id,
        "owner": record.owner,
        "template": sandbox.template,
        "name": sandbox.name,
        "metadata": json.dumps(dict(sandbox.metadata)),
        "cpu": sandbox.resources.cpu,
        "memory_bytes": sandbox.resources.memory_bytes,
        "disk_bytes": sandbox.resources.disk_bytes,
        "pids": sandbox.resources.pids,
        "state": sandbox.state.value,
        "created_us": to_us(sandbox.created_at),
        "key_id": record.key_id,
        "external_id": sandbox.external_id,
        "deadline_action": sandbox.on_deadline.value,
        "budget_s": sandbox.budget.seconds,
        "budget_money": sandbox.budget.money,
        "budget_action": sandbox.on_budget.value,
        "timeout_s": sandbox.timeout_s,
        "idle_timeout_s": sandbox.idle_timeout_s,
        "auto_resume": int(sandbox.auto_resume),
        "volumes": json.dumps([asdict(mount) for mount in sandbox.volumes]),
        "snapshot_id": sandbox.snapshot_id,
        **lifecycle_columns(sandbox),
    }


def lifecycle_columns(sandbox: Sandbox) -> dict[str, Any]:
    """The columns, beside the state, that a step of the lifecycle may change."""
    return {
        "started_us": None if sandbox.started_at is None else to_us(sandbox.started_at),
        "deadline_us": to_us(sandbox.deadline_at),
        "ended_us": None if sandbox.ended_at is None else to_us(sandbox.ended_at),
        "end_reason": None if sandbox.end_reason is None else sandbox.end_reason.value,
        "end_detail": sandbox.end_detail,
        "sleep_reason": None if sandbox.sleep_reason is None else sandbox.sleep_reason.value,
    }


def _from_row(row: Row[Any]) -> Record:
    value = row._asdict()
    sandbox = Sandbox(
        id=value["id"],
        template=value["template"],
        name=value["name"],
        metadata=json.loads(value["metadata"]),
        resources=Resources(
            cpu=value["cpu"],
            memory_bytes=value["memory_bytes"],
            disk_bytes=value["disk_bytes"],
            pids=value["pids"],
        ),
        state=State(value["state"]),
        created_at=from_us(value["created_us"]),
        started_at=None if value["started_us"] is None else from_us(value["started_us"]),
        deadline_at=from_us(value["deadline_us"]),
        ended_at=None if value["ended_us"] is None else from_us(value["ended_us"]),
        end_reason=None if value["end_reason"] is None else EndReason(value["end_reason"]),
        end_detail=value["end_detail"],
        external_id=value["external_id"],
        on_deadline=DeadlineAction(value["deadline_action"]),
        budget=Budget(value["budget_s"], value["budget_money"]),
        timeout_s=value["timeout_s"],
        idle_timeout_s=value["idle_timeout_s"],
        auto_resume=bool(value["auto_resume"]),
        volumes=tuple(VolumeMount(**mount) for mount in json.loads(value["volumes"])),
        snapshot_id=value["snapshot_id"],
        on_budget=DeadlineAction(value["budget_action"]),
        sleep_reason=None if value["sleep_reason"] is None else SleepReason(value["sleep_reason"]),
    )
    return Record(owner=value["owner"], sandbox=sandbox, key_id=value["key_id"])


# Statements of the hot paths are built once; building one costs about as much as running it.
_ADD = adding(sandboxes)
_ADD_METADATA = insert(sandbox_metadata)
_BY_ID = select(sandboxes).where(sandboxes.c.id == bindparam("sandbox_id"))
_BY_LIVE_NAME = select(sandboxes).where(
    and_(sandboxes.c.owner == bindparam("owner"), sandboxes.c.name == bindparam("name"), sandboxes.c.ended_us.is_(None))
)
_BY_EXTERNAL_ID = select(sandboxes).where(
    and_(sandboxes.c.owner == bindparam("owner"), sandboxes.c.external_id == bindparam("external_id"))
)
# One that is in standby because that is what its deadline says has no deadline until it wakes.
_RUNNING = and_(
    sandboxes.c.ended_us.is_(None),
    or_(
        sandboxes.c.state == State.RUNNING.value,
        and_(sandboxes.c.state == State.STANDBY.value, sandboxes.c.deadline_action != DeadlineAction.STANDBY.value),
    ),
)
_OVERDUE = select(sandboxes.c.id).where(_RUNNING, sandboxes.c.deadline_us <= bindparam("now_us"))
_NEXT_DEADLINE = select(func.min(sandboxes.c.deadline_us)).where(
    _RUNNING, sandboxes.c.deadline_us > bindparam("after_us")
)
