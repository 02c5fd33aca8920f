"""What control expects of a database."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
import sqlalchemy as sa

from atoll.control.store import sandboxes as rows
from atoll.control.store.engine import Store, sqlite_url
from atoll.control.store.moments import to_us
from atoll.control.store.sandboxes import Filter, Position, Record
from atoll.control.store.schema import metadata
from atoll.model import ids, limits
from atoll.model.errors import Conflict, Unavailable
from atoll.model.lifecycle import State
from atoll.model.resources import Resources
from atoll.model.sandbox import Sandbox
from atoll.testing.clock import START

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with Store.open(sqlite_url(tmp_path / "db")) as store:
        yield store


def record(number: int, *, name: str | None = None, owner: str = "me", age_s: int = 0) -> Record:
    created = START - timedelta(seconds=age_s)
    sandbox = Sandbox(
        id=ids.mint(ids.SANDBOX, 0, number.to_bytes(16, "big")),
        template="code",
        name=name,
        metadata={"n": str(number)},
        resources=Resources(cpu=0.5),
        state=State.CREATING,
        created_at=created,
        started_at=None,
        deadline_at=created + timedelta(microseconds=1_000_001),
        ended_at=None,
        end_reason=None,
        end_detail="",
    )
    return Record(owner, sandbox)


def schema_of(connection: sa.Connection) -> dict[str, str]:
    found = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE '%alembic%'")
    return {name: re.sub(r"\s+", " ", sql or "") for name, sql in found}


async def test_the_migrations_lead_to_the_schema(store: Store) -> None:
    engine = sa.create_engine("sqlite://")
    with engine.begin() as connection:
        metadata.create_all(connection)
        expected = schema_of(connection)
    engine.dispose()
    assert await store.read(schema_of) == expected


async def test_opening_again_changes_nothing(tmp_path: Path) -> None:
    for _ in range(2):
        async with Store.open(sqlite_url(tmp_path / "again")) as store:
            await store.read(rows.live)


async def test_rows_come_back_as_they_were(store: Store) -> None:
    one = record(1, name="one")
    await store.write(rows.add, one)
    assert await store.read(rows.by_id, one.sandbox.id) == one
    assert await store.read(rows.by_live_name, "me", "one") == one
    assert await store.read(rows.by_live_name, "you", "one") is None
    assert await store.read(rows.by_id, "nobody") is None


async def test_only_one_of_two_finds_the_old_state(store: Store) -> None:
    one = record(1)
    await store.write(rows.add, one)
    won: list[bool] = []

    async def move(target: State) -> None:
        won.append(await store.write(rows.move, one.sandbox.id, State.CREATING, target, {}))

    async with anyio.create_task_group() as tasks:
        for target in (State.RUNNING, State.ENDING, State.FAILED):
            tasks.start_soon(move, target)
    assert sorted(won) == [False, False, True]


async def test_a_name_is_unique_among_the_live(store: Store) -> None:
    await store.write(rows.add, record(1, name="x"))
    with pytest.raises(Conflict):
        await store.write(rows.add, record(2, name="x"))
    await store.write(rows.add, record(3, name="x", owner="you"))
    await store.write(rows.move, record(1).sandbox.id, State.CREATING, State.FAILED, {"ended_us": 1})
    await store.write(rows.add, record(4, name="x"))


async def test_a_transaction_that_fails_leaves_nothing(store: Store) -> None:
    def half(connection: sa.Connection) -> None:
        rows.add(connection, record(1))
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        await store.write(half)
    assert await store.read(rows.live) == []


async def test_pages_go_on_where_the_last_one_ended(store: Store) -> None:
    for number in range(10):
        await store.write(rows.add, record(number, age_s=number // 2))
    seen: list[str] = []
    after: Position | None = None
    while page := await store.read(rows.page, Filter("me"), after, 3):
        seen += [item.sandbox.id for item in page]
        last = page[-1].sandbox
        after = Position(to_us(last.created_at), last.id)
    assert len(seen) == len(set(seen)) == 10
    newest_first = [item.sandbox.created_at for item in await store.read(rows.page, Filter("me"), None, 10)]
    assert newest_first == sorted(newest_first, reverse=True)


async def test_deadlines_are_exact_to_the_microsecond(store: Store) -> None:
    one = record(1)
    await store.write(rows.add, one)
    await store.write(rows.move, one.sandbox.id, State.CREATING, State.RUNNING, {})
    due = one.sandbox.deadline_at
    assert await store.read(rows.next_deadline) == due
    assert await store.read(rows.overdue, due - timedelta(microseconds=1)) == []
    assert await store.read(rows.overdue, due) == [one.sandbox.id]


async def test_a_database_that_is_locked_for_long_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DATABASE_BUSY_S", 0.05)
    async with Store.open(sqlite_url(tmp_path / "db")) as store:
        stranger = sqlite3.connect(tmp_path / "db", isolation_level=None)
        stranger.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable) as caught:
            await store.write(rows.add, record(1))
        assert caught.value.code == "database_unavailable"
        assert await store.read(rows.live) == []  # readers go on
        stranger.execute("ROLLBACK")
        stranger.close()
        await store.write(rows.add, record(1))
