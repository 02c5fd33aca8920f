"""Named queries about usage: meters, the intervals that they leave behind, and sums over them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, select, text, update

from atoll.control.store.moments import from_us, to_us
from atoll.control.store.prepared import Prepared, adding
from atoll.control.store.schema import sandbox_metadata, sandboxes, usage_intervals, usage_meters
from atoll.model.usage import Interval, Meter, Sample, Usage, hour_of, measure

DAY_US = 86_400_000_000
_HOUR_US = 3_600_000_000


@dataclass(frozen=True, slots=True)
class UsageFilter:
    """Which usage is summed up, and by what: `day`, `template`, `sandbox`, `key`, `tenant`, or `label:<key>`."""

    owner: str | None
    """Whose; None is everybody's, which only the operator may see."""
    since: datetime | None = None
    """Counted from the beginning of its hour on."""
    until: datetime | None = None
    template: str | None = None
    sandbox_id: str | None = None
    metadata: Mapping[str, str] | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class UsageSum:
    """The usage of one group; `group` is empty where everything is one."""

    group: str
    sandboxes: int
    usage: Usage


@dataclass(frozen=True, slots=True)
class Reading:
    """What a sandbox had used at the moment up to which it is counted; no sample where the node could not tell."""

    sample: Sample | None
    at: datetime


def open_meter(connection: Connection, sandbox_id: str, owner: str, at: datetime, *, again: bool = False) -> None:
    """Begin to count; a sandbox that is being counted is left as it is.

    `again` is for one that slept. Its counter of egress goes on where it was, so what was counted before is not new.
    """
    if _METER.rows(connection, {"meter_id": sandbox_id}):
        return
    egress_bytes = total_of_sandbox(connection, sandbox_id).egress_bytes if again else 0
    last = Sample(egress_bytes=egress_bytes)
    _ADD_METER.change(connection, _meter_row(Meter(sandbox_id, owner, at, last)))


def meters(connection: Connection) -> list[Meter]:
    return [_meter(row) for row in _METERS.rows(connection, {})]


def shift_meters(connection: Connection, by: timedelta) -> None:
    """Move every meter: the time in between did not pass."""
    moved = usage_meters.c.at_us + round(by.total_seconds() * 1_000_000)
    connection.execute(update(usage_meters).values(at_us=moved))


def count(
    connection: Connection,
    samples: Mapping[str, Sample | None],
    now: datetime,
    known: Mapping[str, datetime] | None = None,
) -> None:
    """Write the intervals up to now of all sandboxes that were sampled, and move their meters, in one go.

    Of one without a sample the time counts, with what it held before; what it has used meanwhile counts with the next.

    A meter that does not stand where it was `known` to stand before the sample is left alone: somebody else has counted
    meanwhile, or it is of another life of the sandbox, and an older total beside a newer one would be counted again.
    """
    for sandbox_id, sample in samples.items():
        for row in _METER.rows(connection, {"meter_id": sandbox_id}):
            meter = _meter(row)
            if known is None or known.get(sandbox_id) == meter.at:
                _move(connection, _count(connection, meter, sample, now))


def count_last(connection: Connection, sandbox_id: str, reading: Reading) -> None:
    """Write what a sandbox has used up to a reading; its meter goes on."""
    for row in _METER.rows(connection, {"meter_id": sandbox_id}):
        _move(connection, _count(connection, _meter(row), reading.sample, reading.at))


def renew_meter(connection: Connection, sandbox_id: str) -> None:
    """The CPU of a sandbox is counted from zero again, by another group of the host."""
    for row in _METER.rows(connection, {"meter_id": sandbox_id}):
        meter = _meter(row)
        _move(connection, replace(meter, last=replace(meter.last, cpu_s=0.0)))


def close_meter(connection: Connection, sandbox_id: str, reading: Reading) -> None:
    """Write the last interval of a sandbox and stop counting; nothing if it is not counted."""
    for row in _METER.rows(connection, {"meter_id": sandbox_id}):
        _count(connection, _meter(row), reading.sample, reading.at)
        drop_meters(connection, [sandbox_id])


def drop_meters(connection: Connection, sandbox_ids: Collection[str]) -> None:
    """Stop counting without a last interval: nobody knows how long these still ran."""
    for sandbox_id in sandbox_ids:
        _DROP_METER.change(connection, {"meter_id": sandbox_id})


def total_of_owner(connection: Connection, owner: str, since: datetime) -> Usage:
    """What a tenant has used since some moment, as far as it is counted."""
    return _sum_one(connection, (usage_intervals.c.owner == owner) & (usage_intervals.c.begin_us >= to_us(since)))


def total_of_sandbox(connection: Connection, sandbox_id: str) -> Usage:
    return _sum_one(connection, usage_intervals.c.sandbox_id == sandbox_id)


def sums(connection: Connection, wanted: UsageFilter, rows_max: int) -> list[UsageSum]:
    """Usage by group, in the groups' order."""
    group = _group(wanted.by)
    column = usage_intervals.c
    query = select(group.label("grouped"), func.count(column.sandbox_id.distinct()), *_AMOUNTS).select_from(
        usage_intervals.join(sandboxes, sandboxes.c.id == column.sandbox_id)
    )
    if wanted.owner is not None:
        query = query.where(column.owner == wanted.owner)
    if wanted.since is not None:
        query = query.where(column.begin_us >= to_us(wanted.since) // _HOUR_US * _HOUR_US)
    if wanted.until is not None:
        query = query.where(column.begin_us < to_us(wanted.until))
    if wanted.template is not None:
        query = query.where(sandboxes.c.template == wanted.template)
    if wanted.sandbox_id is not None:
        query = query.where(column.sandbox_id == wanted.sandbox_id)
    for key, value in (wanted.metadata or {}).items():
        entry = sandbox_metadata.c
        query = query.where(
            select(entry.sandbox_id)
            .where(entry.sandbox_id == column.sandbox_id, entry.key == key, entry.value == value)
            .exists()
        )
    rows = connection.execute(query.group_by(text("grouped")).order_by(text("grouped")).limit(rows_max))
    return [UsageSum(_named(wanted.by, row[0]), row[1], _usage(row[2:])) for row in rows if row[1]]


def _group(by: str | None) -> ColumnElement[Any]:
    if by is None or by == "tenant":
        return sandboxes.c.owner
    if by == "day":
        return usage_intervals.c.begin_us // DAY_US
    if by == "template":
        return sandboxes.c.template
    if by == "sandbox":
        return usage_intervals.c.sandbox_id
    if by == "key":
        return sandboxes.c.key_id
    entry = sandbox_metadata.c
    label = (
        select(entry.value)
        .where(entry.sandbox_id == usage_intervals.c.sandbox_id, entry.key == by.removeprefix("label:"))
        .scalar_subquery()
    )
    return func.coalesce(label, "")


def _named(by: str | None, value: Any) -> str:
    if by is None:
        return ""
    return f"{from_us(int(value) * DAY_US):%Y-%m-%d}" if by == "day" else str(value)


def _count(connection: Connection, meter: Meter, sample: Sample | None, now: datetime) -> Meter:
    intervals, moved = measure(meter, sample, now)
    for interval in intervals:
        row = _interval_row(interval)
        hour = {"hour_us": to_us(hour_of(interval.begin))}
        if not _EXTEND.change(connection, {f"new_{name}": value for name, value in row.items()} | hour):
            _ADD.change(connection, row)
    return moved


def _move(connection: Connection, meter: Meter) -> None:
    _MOVE_METER.change(connection, {"meter_id": meter.sandbox_id, **_meter_values(meter)})


def _sum_one(connection: Connection, which: ColumnElement[bool]) -> Usage:
    return _usage(connection.execute(select(*_AMOUNTS).where(which)).one())


def _usage(row: Any) -> Usage:
    wall_us, cpu_s, memory_gib_s, disk_gib_s, egress_bytes = row
    return Usage(int(wall_us) / 1e6, float(cpu_s), float(memory_gib_s), float(disk_gib_s), int(egress_bytes))


def _interval_row(interval: Interval) -> dict[str, Any]:
    return {
        "sandbox_id": interval.sandbox_id,
        "begin_us": to_us(interval.begin),
        "end_us": to_us(interval.end),
        "owner": interval.owner,
        "cpu_s": interval.usage.cpu_s,
        "memory_gib_s": interval.usage.memory_gib_s,
        "disk_gib_s": interval.usage.disk_gib_s,
        "egress_bytes": interval.usage.egress_bytes,
    }


def _meter_row(meter: Meter) -> dict[str, Any]:
    return {"sandbox_id": meter.sandbox_id, "owner": meter.owner, **_meter_values(meter)}


def _meter_values(meter: Meter) -> dict[str, Any]:
    return {
        "at_us": to_us(meter.at),
        "cpu_s": meter.last.cpu_s,
        "memory_bytes": meter.last.memory_bytes,
        "disk_bytes": meter.last.disk_bytes,
        "egress_bytes": meter.last.egress_bytes,
    }


def _meter(row: tuple[Any, ...]) -> Meter:
    sandbox_id, owner, at_us, *last = row
    return Meter(sandbox_id, owner, from_us(at_us), Sample(*last))


_AMOUNTS = tuple(
    func.coalesce(func.sum(column), 0)
    for column in (
        usage_intervals.c.end_us - usage_intervals.c.begin_us,
        usage_intervals.c.cpu_s,
        usage_intervals.c.memory_gib_s,
        usage_intervals.c.disk_gib_s,
        usage_intervals.c.egress_bytes,
    )
)
_ADD = adding(usage_intervals)
_EXTENDED = ("cpu_s", "memory_gib_s", "disk_gib_s", "egress_bytes")
_EXTEND = Prepared(  # the interval of the same hour that this one follows, if there is one
    update(usage_intervals)
    .where(
        usage_intervals.c.sandbox_id == bindparam("new_sandbox_id"),
        usage_intervals.c.begin_us >= bindparam("hour_us"),
        usage_intervals.c.end_us == bindparam("new_begin_us"),
        usage_intervals.c.owner == bindparam("new_owner"),
    )
    .values(
        {"end_us": bindparam("new_end_us")}
        | {name: usage_intervals.c[name] + bindparam(f"new_{name}") for name in _EXTENDED}
    )
)
_ADD_METER = adding(usage_meters)
_VALUES = ("at_us", "cpu_s", "memory_bytes", "disk_bytes", "egress_bytes")
_SHOWN = select(*[usage_meters.c[name] for name in ("sandbox_id", "owner", *_VALUES)])
_METERS = Prepared(_SHOWN)
_METER = Prepared(_SHOWN.where(usage_meters.c.sandbox_id == bindparam("meter_id")))
_DROP_METER = Prepared(delete(usage_meters).where(usage_meters.c.sandbox_id == bindparam("meter_id")))
_MOVE_METER = Prepared(
    update(usage_meters)
    .where(usage_meters.c.sandbox_id == bindparam("meter_id"))
    .values({name: bindparam(name) for name in _VALUES})
)
