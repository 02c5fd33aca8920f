"""One server on one PostgreSQL: for real, with restarts of it, and sessions that are ended under their owner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from atoll.app.serve import locked
from atoll.app.settings import Settings
from atoll.control.store import engine, sole
from atoll.control.store.sole import SoleUse
from atoll.model import limits
from atoll.model.errors import Conflict, Unavailable
from atoll.testing.postgres import Postgres

pytestmark = pytest.mark.anyio


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.database()


@pytest.fixture
def two(url: str) -> Iterator[tuple[SoleUse, SoleUse]]:
    """Two servers that want the same database."""
    with ExitStack() as stack:
        pair = SoleUse(url), SoleUse(url)
        for one in pair:
            stack.callback(one.close)
        yield pair


def end_sessions(url: str) -> None:
    """End all sessions of a database but this one."""
    other = engine.database_engine(url)
    with other.connect() as connection:
        connection.exec_driver_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    other.dispose()


async def test_a_second_server_on_one_database_is_refused(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is whoever would put a record back under it; another database is none of their business."""
    monkeypatch.setattr(limits, "DATABASE_BUSY_S", 0.1)
    async with sole.kept(url):
        with pytest.raises(Conflict) as caught, locked(Settings(data=tmp_path, database=url)):
            pass
        assert caught.value.code == "database_in_use"
        with locked(Settings(data=tmp_path)):
            pass
    with locked(Settings(data=tmp_path, database=url)):
        pass


def test_a_server_that_starts_waits_for_the_end_of_the_one_before(two: tuple[SoleUse, SoleUse]) -> None:
    """A session may end a little later than the process that was killed."""
    before, after = two
    assert before.take()
    with anyio.from_thread.start_blocking_portal() as portal:
        starting = portal.start_task_soon(anyio.to_thread.run_sync, after.take_soon)
        before.close()
        starting.result(5)
    assert after.take()


def test_a_database_that_was_restarted_is_taken_again(
    postgres: Postgres, two: tuple[SoleUse, SoleUse], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, other = two
    assert ours.take()
    postgres.stop()
    try:
        with pytest.raises(Unavailable):
            ours.take()
    finally:
        postgres.start()
    assert ours.take()
    assert not other.take()
    assert ours.take()


async def test_who_has_lost_the_database_to_another_ends(
    url: str, two: tuple[SoleUse, SoleUse], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DATABASE_HELD_LOOK_S", 0.01)
    ours, other = two
    assert ours.take()
    with anyio.move_on_after(0.1):
        await ours.keep()  # as long as nothing happens
    end_sessions(url)
    with anyio.fail_after(5):
        while not other.take():
            await anyio.sleep(0.01)
        with pytest.raises(Conflict):
            await ours.keep()


def test_a_connection_waits_for_nothing_without_end(url: str) -> None:
    """Neither for a lock, nor for a statement, nor for an end that is gone."""
    database = engine.database_engine(url)
    try:
        with database.connect() as connection:

            def shown(name: str) -> str:
                return str(connection.exec_driver_sql(f"SHOW {name}").scalar_one())

            assert shown("statement_timeout") == f"{limits.DATABASE_STATEMENT_S_MAX:g}s"
            assert shown("lock_timeout") == f"{limits.DATABASE_BUSY_S:g}s"
            driver = connection.connection.driver_connection
            assert driver is not None
            asked = driver.info.get_parameters()
            assert asked["tcp_user_timeout"] == str(int(limits.DATABASE_LOST_S_MAX * 1000))
            assert asked["keepalives_idle"] == str(int(limits.DATABASE_PROBE_S))
            assert "tcp_keepalives_count" in asked["options"]
            engine.take_time(connection)
            assert shown("statement_timeout") == "0"
            connection.exec_driver_sql("SET LOCAL statement_timeout = 10")
            with pytest.raises(Unavailable), engine.meaning():
                connection.exec_driver_sql("SELECT pg_sleep(5)")
    finally:
        database.dispose()
