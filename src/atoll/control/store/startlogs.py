"""Named queries about the logs of starts that failed."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select

from atoll.control.store.schema import start_logs


def put(connection: Connection, sandbox_id: str, log: str) -> None:
    """Keep the log of a start, in place of an earlier one."""
    connection.execute(delete(start_logs).where(start_logs.c.sandbox_id == sandbox_id))
    connection.execute(insert(start_logs), {"sandbox_id": sandbox_id, "log": log})


def get(connection: Connection, sandbox_id: str) -> str:
    """The log, or nothing."""
    wanted = select(start_logs.c.log).where(start_logs.c.sandbox_id == sandbox_id)
    return connection.execute(wanted).scalar_one_or_none() or ""
