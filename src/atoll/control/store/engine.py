"""The database: opened, brought to the newest schema, read from and written to.

Queries are plain functions that take a connection; a whole transaction runs in one thread, so it costs one hand-over
and not one for every statement (seen: a write of one row 0.3 ms this way, 0.8 to 2 ms with an asynchronous driver).

SQLite allows one writer at a time. A writer takes the lock when it begins (BEGIN IMMEDIATE), not in the middle, where
it could only fail; writers of this process queue for it here, others (a backup, a second process) are waited for by
SQLite itself. A transaction that has begun is waited for even by a caller who is cancelled, so its outcome is known.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import anyio
import anyio.to_thread
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from atoll.model import limits
from atoll.model.errors import Internal, Unavailable

P = ParamSpec("P")
T = TypeVar("T")


class Store:
    """One database. `read` and `write` are the only ways in."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reader = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._reading = anyio.CapacityLimiter(limits.DATABASE_CONNECTIONS_MAX - 1)
        self._writing = anyio.CapacityLimiter(1)

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[Store]:
        """Open the database at an SQLAlchemy address, with its schema brought up to date."""
        engine = create_engine(
            url,
            pool_size=limits.DATABASE_CONNECTIONS_MAX,
            max_overflow=0,
            pool_timeout=limits.DATABASE_BUSY_S,
            connect_args={"check_same_thread": False} if url.startswith("sqlite") else {},
        )
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _on_connect)
            event.listen(engine, "begin", _on_begin)
        store = cls(engine)
        try:
            await store.write(_migrate)
            yield store
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(engine.dispose)

    async def read(self, query: Callable[Concatenate[Connection, P], T], *arguments: P.args, **options: P.kwargs) -> T:
        """The answer of a query that changes nothing; each of its statements sees what is committed then."""

        def run() -> T:
            with self._reader.connect() as connection:
                return query(connection, *arguments, **options)

        return await _in_thread(run, self._reading)

    async def write(self, query: Callable[Concatenate[Connection, P], T], *arguments: P.args, **options: P.kwargs) -> T:
        """The answer of a query that runs as one transaction: all of it or nothing."""

        def run() -> T:
            with self._engine.connect().execution_options(atoll_writer=True) as connection, connection.begin():
                return query(connection, *arguments, **options)

        return await _in_thread(run, self._writing)


def sqlite_url(path: Path) -> str:
    return f"sqlite:///{path}"


async def _in_thread(run: Callable[[], T], limiter: anyio.CapacityLimiter) -> T:
    """Run a transaction. A database that is locked for too long, full or gone is a reason to retry, not a bug."""
    try:
        return await anyio.to_thread.run_sync(run, limiter=limiter)
    except (OperationalError, PoolTimeoutError) as error:
        raise Unavailable(
            "the database does not answer", code="database_unavailable", hint="Try again.", detail=str(error)
        ) from error


def _on_connect(connection: DBAPIConnection, _record: object) -> None:
    connection.isolation_level = None  # transactions begin where we say so
    cursor = connection.cursor()
    for pragma in (
        "journal_mode=WAL",
        "synchronous=NORMAL",  # with WAL a crash of the server loses nothing, one of the machine the last moments
        f"busy_timeout={int(limits.DATABASE_BUSY_S * 1000)}",
        "foreign_keys=ON",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _on_begin(connection: Connection) -> None:
    if connection.get_execution_options().get("atoll_writer"):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _migrate(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except DatabaseError as error:
        raise Internal("the database cannot be brought to this version's schema", detail=str(error)) from error
