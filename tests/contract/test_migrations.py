"""What any earlier version has written is there after an upgrade, in each table and column that it had."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from atoll.control.store import engine, events
from atoll.control.store.engine import Store
from atoll.control.store.schema import metadata
from atoll.model.event import Event
from atoll.testing.clock import START
from tests.contract.test_store_schema import migrate

pytestmark = pytest.mark.anyio

REVISIONS = [script.revision for script in reversed(list(engine.scripts().walk_revisions()))]
ROWS = 3

Rows = list[dict[str, Any]]


def known(connection: sa.Connection) -> list[sa.Table]:
    """The tables that there are, those that others refer to first."""
    found = sa.MetaData()
    found.reflect(connection)
    return [table for table in found.sorted_tables if table.name != "alembic_version"]


def value(column: sa.Column[Any], number: int) -> Any:
    """Something of the column's kind; what refers to another row names the one with this number."""
    for key in column.foreign_keys:
        return value(key.column, number)
    if isinstance(column.type, sa.Text):
        return f"{column.table.name}.{column.name}.{number}"
    return number + 0.5 if isinstance(column.type, sa.Float) else number


def fill(connection: sa.Connection) -> dict[str, Rows]:
    filled = {}
    for table in known(connection):
        rows = [{column.name: value(column, number) for column in table.columns} for number in range(1, ROWS + 1)]
        # The database itself numbers the entries of the log, from 1 on.
        drawn = "number" if table.name == "events" else ""
        given = [{name: one for name, one in row.items() if name != drawn} for row in rows]
        connection.execute(sa.insert(table), given)
        filled[table.name] = rows
    return filled


def rows_of(connection: sa.Connection, name: str, columns: list[str]) -> Rows:
    table = metadata.tables[name].c
    return [dict(row) for row in connection.execute(sa.select(*[table[one] for one in columns])).mappings()]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_every_row_of_every_earlier_version_is_carried_forward(url: str, revision: str) -> None:
    """Also the numbers of the audit log go on: what comes later is after what was there."""
    migrate(url, revision, "")
    old = engine.database_engine(url)
    with old.begin() as connection:
        filled = fill(connection)
    old.dispose()
    assert {"sandboxes", "sandbox_metadata", "api_keys"} <= filled.keys()
    async with Store.open(url) as store:
        for name, rows in filled.items():
            found = await store.read(rows_of, name, list(rows[0]))
            assert sorted(found, key=str) == sorted(rows, key=str), name
        if revision == "0001":
            owners = await store.read(rows_of, "tenants", ["id", "created_us"])
            assert {one["created_us"] for one in owners} == set(range(1, ROWS + 1))
        await store.write(events.add, Event(at=START, owner="me", actor="ak", action="after"))
        assert await store.read(events.last_number) == (ROWS if "events" in filled else 0) + 1
