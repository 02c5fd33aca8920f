"""Usage on record, in SQLite and PostgreSQL: every moment once, and a row for each hour."""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any

import anyio
import anyio.to_thread
import pytest
import sqlalchemy as sa

from atoll.control.store import sandboxes as rows
from atoll.control.store import usage
from atoll.control.store.engine import Store
from atoll.control.store.moments import from_us
from atoll.control.store.schema import usage_intervals
from atoll.control.store.usage import Reading, UsageFilter
from atoll.model import limits
from atoll.model.errors import Conflict
from atoll.model.usage import Sample
from atoll.testing.clock import START
from tests.contract.records import record

pytestmark = pytest.mark.anyio


async def test_usage_is_summed_by_day_template_and_label(store: Store) -> None:
    noon = START.replace(hour=12)
    for number in (1, 2):
        await store.write(rows.add, record(number))
        await store.write(usage.open_meter, record(number).sandbox.id, "me", noon)
    one, two = (record(number).sandbox.id for number in (1, 2))
    sample = Sample(cpu_s=86400.0, memory_bytes=limits.GIB, disk_bytes=0, egress_bytes=10)
    await store.write(usage.count, {one: sample}, noon + timedelta(days=1))
    await store.write(usage.close_meter, one, Reading(sample, noon + timedelta(days=1)))
    await store.write(usage.close_meter, two, Reading(None, noon + timedelta(seconds=30)))

    async def sums(by: str | None, **filters: Any) -> dict[str, tuple[float, float]]:
        found = await store.read(usage.sums, UsageFilter("me", by=by, **filters), 100)
        return {one.group: (one.usage.wall_s, one.usage.cpu_s) for one in found}

    assert await sums(None) == {"": (86430.0, 86400.0)}
    assert await sums("day") == {"2026-01-01": (43230.0, 43200.0), "2026-01-02": (43200.0, 43200.0)}
    assert await sums("template") == {"code": (86430.0, 86400.0)}
    assert await sums("label:n") == {"1": (86400.0, 86400.0), "2": (30.0, 0.0)}
    assert await sums("sandbox", metadata={"n": "2"}) == {two: (30.0, 0.0)}
    assert await sums(None, until=START.replace(hour=0)) == {}
    assert await store.read(usage.sums, UsageFilter("you"), 100) == []
    assert await store.read(usage.meters) == []


async def test_the_same_time_cannot_be_counted_twice(store: Store) -> None:
    await store.write(rows.add, record(1))
    sandbox_id = record(1).sandbox.id
    await store.write(usage.open_meter, sandbox_id, "me", START)
    moment = START + timedelta(seconds=10)
    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(store.write, usage.count, {sandbox_id: Sample(cpu_s=3)}, moment)
    found = await store.read(usage.total_of_sandbox, sandbox_id)
    assert (found.wall_s, found.cpu_s) == (10.0, 3.0)


def interval_rows(connection: sa.Connection) -> list[tuple[str, float]]:
    """When each interval begins, and how long it is."""
    columns = usage_intervals.c
    found = connection.execute(sa.select(columns.begin_us, columns.end_us).order_by(columns.begin_us))
    return [(f"{from_us(begin):%H:%M:%S}", (end - begin) / 1e6) for begin, end in found]


async def test_however_often_somebody_looks_an_hour_of_a_sandbox_is_one_row(store: Store) -> None:
    """Exactly: also where a look is undone with its transaction, and where a sandbox slept in between."""
    await store.write(rows.add, record(1))
    sandbox_id = record(1).sandbox.id
    begin = START.replace(hour=10, minute=59, second=0)
    await store.write(usage.open_meter, sandbox_id, "me", begin)

    def sample(second: int) -> Sample:
        return Sample(cpu_s=second / 4, memory_bytes=limits.GIB if second else 0, egress_bytes=10 * second)

    def undone(connection: sa.Connection, second: int) -> None:
        usage.count(connection, {sandbox_id: sample(second)}, begin + timedelta(seconds=second))
        raise Conflict("killed")

    for second in range(1, 91):
        if second % 30 == 0:
            with pytest.raises(Conflict):
                await store.write(undone, second)
        await store.write(usage.count, {sandbox_id: sample(second)}, begin + timedelta(seconds=second))
    assert await store.read(interval_rows) == [("10:59:00", 60), ("11:00:00", 30)]
    used = await store.read(usage.total_of_sandbox, sandbox_id)
    assert (used.wall_s, used.cpu_s, used.memory_gib_s, used.egress_bytes) == (90, 22.5, 89.5, 900)
    await store.write(usage.close_meter, sandbox_id, Reading(sample(90), begin + timedelta(seconds=100)))
    await store.write(functools.partial(usage.open_meter, again=True), sandbox_id, "me", begin + timedelta(seconds=110))
    for second in (115, 120):
        await store.write(usage.count, {sandbox_id: sample(90)}, begin + timedelta(seconds=second))
    assert await store.read(interval_rows) == [("10:59:00", 60), ("11:00:00", 40), ("11:00:50", 10)]


@pytest.mark.parametrize(("since", "until", "wall_s"), [(None, None, 7200), (11.5, None, 5400), (12, 13, 1800)])
async def test_usage_is_summed_over_whole_hours(
    store: Store, since: float | None, until: float | None, wall_s: float
) -> None:
    await store.write(rows.add, record(1))
    sandbox_id, day = record(1).sandbox.id, START.replace(hour=0)
    await store.write(usage.open_meter, sandbox_id, "me", day + timedelta(hours=10.5))
    await store.write(usage.count, {sandbox_id: Sample()}, day + timedelta(hours=12.5))
    await store.write(usage.close_meter, sandbox_id, Reading(None, day + timedelta(hours=12.5)))
    moments = [None if hours is None else day + timedelta(hours=hours) for hours in (since, until)]
    (found,) = await store.read(usage.sums, UsageFilter("me", moments[0], moments[1]), 10)
    assert found.usage.wall_s == wall_s


async def test_what_a_sandbox_sent_before_it_slept_is_not_counted_again(store: Store) -> None:
    """Its counter of egress goes on where it was when it wakes; that of its CPU begins anew, in a new box."""
    await store.write(rows.add, record(1))
    sandbox_id = record(1).sandbox.id
    await store.write(usage.open_meter, sandbox_id, "me", START)
    slept = Sample(cpu_s=3.0, egress_bytes=1000)
    await store.write(usage.close_meter, sandbox_id, Reading(slept, START + timedelta(seconds=10)))
    await store.write(functools.partial(usage.open_meter, again=True), sandbox_id, "me", START + timedelta(seconds=60))
    woke = Sample(cpu_s=2.0, egress_bytes=1500)
    await store.write(usage.count, {sandbox_id: woke}, START + timedelta(seconds=70))
    found = await store.read(usage.total_of_sandbox, sandbox_id)
    assert (found.wall_s, found.cpu_s, found.egress_bytes) == (20.0, 5.0, 1500)
