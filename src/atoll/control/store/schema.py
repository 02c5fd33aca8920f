"""The tables. Times are whole microseconds since 1970 in UTC, so that both databases compare them alike.

A sandbox is live as long as `ended_us` is null; among the live ones of an owner a name is unique. What `metadata` holds
is also in `sandbox_metadata`, one row for each entry, because that can be indexed in either database.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Index, Integer, MetaData, Table, Text, text

metadata = MetaData()

sandboxes = Table(
    "sandboxes",
    metadata,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("template", Text, nullable=False),
    Column("name", Text, nullable=True),
    Column("metadata", Text, nullable=False),
    Column("cpu", Float, nullable=False),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("disk_bytes", BigInteger, nullable=False),
    Column("pids", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("started_us", BigInteger, nullable=True),
    Column("deadline_us", BigInteger, nullable=False),
    Column("ended_us", BigInteger, nullable=True),
    Column("end_reason", Text, nullable=True),
    Column("end_detail", Text, nullable=False),
)

_LIVE = text("ended_us IS NULL")

Index(
    "sandboxes_live_name",
    sandboxes.c.owner,
    sandboxes.c.name,
    unique=True,
    sqlite_where=_LIVE,
    postgresql_where=_LIVE,
)
Index("sandboxes_newest", sandboxes.c.owner, sandboxes.c.created_us, sandboxes.c.id)
Index("sandboxes_live_deadline", sandboxes.c.deadline_us, sqlite_where=_LIVE, postgresql_where=_LIVE)

sandbox_metadata = Table(
    "sandbox_metadata",
    metadata,
    Column("sandbox_id", Text, ForeignKey("sandboxes.id", ondelete="CASCADE"), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("hash", Text, nullable=False, unique=True),
    Column("scopes", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
)
