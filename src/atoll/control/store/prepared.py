"""Statements of the hot paths: turned into text once for each kind of database, then given to its driver as they are.

What SQLAlchemy does for a statement each time it runs (a key for its cache, a context, a result with its metadata)
costs ten times what SQLite needs for it (seen: 0.2 ms against 0.02). A create has ten of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Column, Connection, Dialect, Table, bindparam, insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ClauseElement

Values = Mapping[str, Any]


class Prepared:
    """One statement. Its values are named as its parameters are; those that it has already need not be given."""

    def __init__(self, statement: Executable) -> None:
        assert isinstance(statement, ClauseElement)
        self._statement = statement
        self._texts: dict[str, _Text] = {}

    def rows(self, connection: Connection, values: Values) -> list[Any]:
        """What it finds, each row a tuple in the order of its columns."""
        rows: list[Any] = self._run(connection, values).fetchall()
        return rows

    def change(self, connection: Connection, values: Values) -> int:
        """How many rows it has changed."""
        count: int = self._run(connection, values).rowcount
        return count

    def _run(self, connection: Connection, values: Values) -> Any:
        dialect = connection.dialect
        text = self._texts.get(dialect.name)
        if text is None:
            text = self._texts[dialect.name] = _Text(self._statement, dialect)
        given = text.arranged(values)
        cursor = connection.connection.cursor()
        try:
            cursor.execute(text.sql, given)
        except dialect.loaded_dbapi.Error as error:
            # In the words that errors of all other statements have. The values are nobody's business.
            raise DBAPIError.instance(
                text.sql, None, error, dialect.loaded_dbapi.Error, hide_parameters=True, dialect=dialect
            ) from error
        return cursor


class _Text:
    """A statement as one kind of database reads it."""

    def __init__(self, statement: ClauseElement, dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect)
        assert isinstance(compiled, SQLCompiler)
        self.sql = str(compiled)
        self._fixed: Values = {name: value for name, value in compiled.params.items() if value is not None}
        self._order = compiled.positiontup

    def arranged(self, values: Values) -> Any:
        given = {**self._fixed, **values}
        return given if self._order is None else tuple([given[name] for name in self._order])


def adding(table: Table, told: Column[Any] | None = None) -> Prepared:
    """A new row with a value for each column, except one that the database fills and tells, if there is one."""
    row = insert(table).values({column.name: bindparam(column.name) for column in table.columns if column is not told})
    return Prepared(row if told is None else row.returning(told))
