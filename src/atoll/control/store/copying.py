"""A whole database copied into another of the same schema, SQLite or PostgreSQL: one moment of it, all or nothing."""

from __future__ import annotations

from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, Engine, func, insert, inspect, select, text

from atoll.control.store.engine import database_engine, meaning, migrate, other_version, scripts, take_time
from atoll.control.store.schema import events, metadata, tenants

_ROWS_AT_ONCE = 1000


def copy_database(source_url: str, target_url: str) -> None:
    """Bring the target to the newest schema and have nothing in it but what is in the source.

    The source must have the newest schema: it is read in one transaction, while others go on writing.
    """
    with meaning():
        source, target = database_engine(source_url), database_engine(target_url)
        try:
            with _snapshot(source).begin() as reading, _writer(target).begin() as writing:
                take_time(reading)
                take_time(writing)
                _check_newest(reading)
                migrate(writing)
                for table in reversed(metadata.sorted_tables):
                    writing.execute(table.delete())
                for table in metadata.sorted_tables:
                    found = reading.execution_options(yield_per=_ROWS_AT_ONCE).execute(select(table))
                    for rows in found.mappings().partitions(_ROWS_AT_ONCE):
                        writing.execute(insert(table), [dict(row) for row in rows])
                _number_on(writing)
        finally:
            source.dispose()
            target.dispose()


def has_record(url: str) -> bool:
    """Whether a server has ever used this database."""
    with meaning():
        engine = database_engine(url)
        try:
            with engine.begin() as connection:
                return inspect(connection).has_table(tenants.name) and (
                    connection.execute(select(tenants.c.id).limit(1)).first() is not None
                )
        finally:
            engine.dispose()


def bring_forward(url: str) -> None:
    """Give a database that an older version has written the newest schema."""
    with meaning():
        engine = database_engine(url)
        try:
            with _writer(engine).begin() as connection:
                migrate(connection)
        finally:
            engine.dispose()


def _check_newest(connection: Connection) -> None:
    if MigrationContext.configure(connection).get_current_revision() != scripts().get_current_head():
        raise other_version()


def _snapshot(engine: Engine) -> Engine:
    """All statements of a transaction see one moment; SQLite's do so by themselves."""
    return engine if engine.dialect.name == "sqlite" else engine.execution_options(isolation_level="REPEATABLE READ")


def _writer(engine: Engine) -> Engine:
    """Alone among those who write, from the first statement on."""
    return engine.execution_options(atoll_writer=True)


def _number_on(connection: Connection) -> None:
    """Events that come are numbered after those that were copied. SQLite sees to that by itself."""
    last = connection.execute(select(func.max(events.c.number))).scalar_one()
    if connection.dialect.name == "postgresql" and last is not None:
        connection.execute(text("SELECT setval(pg_get_serial_sequence('events', 'number'), :last)"), {"last": last})
