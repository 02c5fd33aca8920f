"""The database: opened, brought to the newest schema, read from and written to.

Queries are plain functions that take a connection; a whole transaction runs in one thread, so it costs one hand-over
and not one for every statement (seen: a write of one row 0.3 ms this way, 0.8 to 2 ms with an asynchronous driver).

SQLite allows one writer at a time. A writer takes the lock when it begins (BEGIN IMMEDIATE), not in the middle, where
it could only fail; writes of this process are one thread's (`writer.py`), others (a backup, a second process) are
waited for by SQLite itself. What was given to the writer is waited for even by a caller who is cancelled, so its
outcome is known.

PostgreSQL would allow many. There a writer begins with an advisory lock, so that what holds on one database holds on
the other: whoever counts and then adds is alone, and the numbers of events are in the order of their commits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import anyio
import anyio.to_thread
from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DatabaseError, DataError, InterfaceError, NoSuchModuleError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from atoll.control.store.prepared import Prepared
from atoll.control.store.schema import NEWEST
from atoll.control.store.writer import Writer
from atoll.model import limits
from atoll.model.errors import Conflict, Internal, InvalidArgument, Unavailable

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory

_WRITER_LOCK = 0x61746F6C6C  # "atoll"; one number for all that write to this database
_MIGRATIONS = Path(__file__).parent / "migrations"
_BEGIN = Prepared(text("BEGIN IMMEDIATE"))

P = ParamSpec("P")
T = TypeVar("T")


class Store:
    """One database. `read` and `write` are the only ways in."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reader = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._reading = anyio.CapacityLimiter(limits.DATABASE_CONNECTIONS_MAX - 1)
        self._writer = Writer(engine, keep_connection=engine.dialect.name == "sqlite")

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[Store]:
        """Open the database at an SQLAlchemy address, with its schema brought up to date."""
        engine = database_engine(url)
        store = cls(engine)
        store._writer.start()
        try:
            await store.write(migrate)
            yield store
        finally:
            with anyio.CancelScope(shield=True):
                await store._writer.close()
                await anyio.to_thread.run_sync(engine.dispose)

    async def read(self, query: Callable[Concatenate[Connection, P], T], *arguments: P.args, **options: P.kwargs) -> T:
        """The answer of a query that changes nothing; each of its statements sees what is committed then."""

        def run() -> T:
            with self._reader.connect() as connection:
                return query(connection, *arguments, **options)

        with meaning():
            return await anyio.to_thread.run_sync(run, limiter=self._reading)

    async def write(self, query: Callable[Concatenate[Connection, P], T], *arguments: P.args, **options: P.kwargs) -> T:
        """The answer of a query that runs as one transaction: all of it or nothing."""

        def run(connection: Connection) -> T:
            return query(connection, *arguments, **options)

        with meaning():
            return await self._writer.run(run)


def sqlite_url(path: Path) -> str:
    return f"sqlite:///{path}"


def database_engine(url: str) -> Engine:
    """Connections to the database at this address, opened when they are needed."""
    is_sqlite = url.startswith("sqlite:")
    try:
        address = make_url(url)
        if address.drivername == "postgresql":
            address = address.set(drivername="postgresql+psycopg")
        if address.drivername not in ("sqlite", "postgresql+psycopg"):
            raise ArgumentError(address.drivername)
        engine = create_engine(
            address,
            pool_size=limits.DATABASE_CONNECTIONS_MAX,
            max_overflow=0,
            pool_timeout=limits.DATABASE_BUSY_S,
            pool_pre_ping=not is_sqlite,  # a server that was restarted is noticed before a transaction begins
            connect_args={"check_same_thread": False} if is_sqlite else _postgresql_arguments(),
        )
    except ModuleNotFoundError as error:
        raise Unavailable(
            f"the driver of this database is not installed ({error.name} is missing)",
            code="not_installed",
            hint="pip install 'atoll[postgres]'",
        ) from error
    except (ArgumentError, NoSuchModuleError):
        raise InvalidArgument(
            "database is not the address of a database",
            code="invalid_settings",
            hint="Write postgresql://user:password@host/name, or leave it out for SQLite in the data directory.",
        ) from None
    if is_sqlite:
        event.listen(engine, "connect", _on_connect)
    event.listen(engine, "begin", _on_begin if is_sqlite else _on_begin_postgresql)
    return engine


def _postgresql_arguments() -> dict[str, Any]:
    """Bounds on how long a connection waits, at both ends: for a lock, a statement, and an end that says nothing any
    more because its machine or the way to it is gone."""
    probe_s, probes = int(limits.DATABASE_PROBE_S), limits.DATABASE_PROBES_MAX
    lost_ms = int(limits.DATABASE_LOST_S_MAX * 1000)
    there = {
        "lock_timeout": int(limits.DATABASE_BUSY_S * 1000),
        "statement_timeout": int(limits.DATABASE_STATEMENT_S_MAX * 1000),
        "tcp_keepalives_idle": probe_s,
        "tcp_keepalives_interval": probe_s,
        "tcp_keepalives_count": probes,
        "tcp_user_timeout": lost_ms,
    }
    return {
        "connect_timeout": int(limits.DATABASE_BUSY_S),
        "keepalives": 1,
        "keepalives_idle": probe_s,
        "keepalives_interval": probe_s,
        "keepalives_count": probes,
        "tcp_user_timeout": lost_ms,
        "options": " ".join(f"-c {name}={value}" for name, value in there.items()),
    }


def take_time(connection: Connection) -> None:
    """What follows in this transaction is about all that there is, and may take as long as it does."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")


@contextmanager
def meaning() -> Iterator[None]:
    """What an error means: a database that is locked for too long, full or gone is a reason to retry, not a bug."""
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeoutError) as error:
        raise Unavailable(
            "the database does not answer", code="database_unavailable", hint="Try again.", detail=str(error)
        ) from error
    except (DataError, UnicodeEncodeError) as error:
        # A number that is too large, a NUL, half a character: no database keeps it, so it is nowhere to be found.
        raise InvalidArgument("a value is no text or no number that can be kept", code="invalid_text") from error


def _on_connect(connection: DBAPIConnection, _record: object) -> None:
    connection.isolation_level = None  # transactions begin where we say so
    cursor = connection.cursor()
    for pragma in (
        "journal_mode=WAL",
        "synchronous=NORMAL",  # with WAL a crash of the server loses nothing, one of the machine the last moments
        f"busy_timeout={int(limits.DATABASE_BUSY_S * 1000)}",
        "foreign_keys=ON",
        "secure_delete=FAST",  # what was replaced, such as a secret under an old key, is gone from its page
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _on_begin(connection: Connection) -> None:
    if connection.get_execution_options().get("atoll_writer"):
        _BEGIN.change(connection, {})


def _on_begin_postgresql(connection: Connection) -> None:
    if connection.get_execution_options().get("atoll_writer"):
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITER_LOCK})")


def scripts() -> ScriptDirectory:
    """All steps that a schema has gone through."""
    from alembic.script import ScriptDirectory

    return ScriptDirectory(str(_MIGRATIONS))


def other_version() -> Conflict:
    return Conflict(
        "the database was written by another version",
        code="other_version",
        hint="Use the program of the server that writes it; a newer server brings it forward when it starts.",
    )


def migrate(connection: Connection) -> None:
    """Bring a database to the newest schema.

    Nothing, if it has that: a restart does not wait for what would find out what is to be done, which is large.
    """
    is_old = inspect(connection).has_table("alembic_version")
    found = set(connection.scalars(text("SELECT version_num FROM alembic_version"))) if is_old else set()
    if found == {NEWEST}:
        return
    if not found <= {script.revision for script in scripts().walk_revisions()}:
        raise other_version()
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["connection"] = connection
    take_time(connection)
    try:
        command.upgrade(config, "head")
    except DatabaseError as error:
        raise Internal("the database cannot be brought to this version's schema", detail=str(error)) from error
