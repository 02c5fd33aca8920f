"""The tables. Times are whole microseconds since 1970 in UTC, so that both databases compare them alike.

A sandbox is live as long as `ended_us` is null; among the live ones of an owner a name is unique. What `metadata` holds
is also in `sandbox_metadata`, one row for each entry, because that can be indexed in either database.

`owner` is a tenant. Events are only ever added, and forgotten when they are old. A usage interval lies within one hour
and grows to its end; its key says where it begins, so that the same time cannot be counted twice.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Index, Integer, MetaData, Table, Text, text

NEWEST = "0010"  # the last of the migrations, which leads to these tables

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
    Column("key_id", Text, nullable=False, server_default=""),
    Column("external_id", Text, nullable=True),
    Column("deadline_action", Text, nullable=False, server_default="kill"),
    Column("budget_s", Float, nullable=True),
    Column("budget_money", Float, nullable=True),
    Column("timeout_s", Float, nullable=False, server_default="300"),
    Column("idle_timeout_s", Float, nullable=True),
    Column("auto_resume", Integer, nullable=False, server_default="0"),
    Column("volumes", Text, nullable=False, server_default="[]"),
    Column("snapshot_id", Text, nullable=True),
    Column("budget_action", Text, nullable=False, server_default="kill"),
    Column("sleep_reason", Text, nullable=True),
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
Index("sandboxes_external", sandboxes.c.owner, sandboxes.c.external_id, unique=True)
Index("sandboxes_by_key", sandboxes.c.key_id, sandboxes.c.created_us)

sandbox_metadata = Table(
    "sandbox_metadata",
    metadata,
    Column("sandbox_id", Text, ForeignKey("sandboxes.id", ondelete="CASCADE"), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

start_logs = Table(
    "start_logs",
    metadata,
    Column("sandbox_id", Text, ForeignKey("sandboxes.id", ondelete="CASCADE"), primary_key=True),
    Column("log", Text, nullable=False),
)

sandbox_ports = Table(
    "sandbox_ports",
    metadata,
    Column("sandbox_id", Text, ForeignKey("sandboxes.id", ondelete="CASCADE"), primary_key=True),
    Column("port", Integer, primary_key=True),
    Column("public", Integer, nullable=False),
    Column("mask_host", Text, nullable=False),
    Column("generation", Integer, nullable=False),
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
    Column("member_id", Text, nullable=True),
    Column("quota", Text, nullable=False, server_default="{}"),
    Column("expires_us", BigInteger, nullable=True),
    Column("revoked_us", BigInteger, nullable=True),
    Column("last_used_us", BigInteger, nullable=True),
)
Index("api_keys_owner", api_keys.c.owner, api_keys.c.created_us)

tenants = Table(
    "tenants",
    metadata,
    Column("id", Text, primary_key=True),
    Column("quota", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("removed_us", BigInteger, nullable=True),
)

members = Table(
    "members",
    metadata,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("scopes", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("removed_us", BigInteger, nullable=True),
)
_PRESENT = text("removed_us IS NULL")
Index(
    "members_name",
    members.c.owner,
    members.c.name,
    unique=True,
    sqlite_where=_PRESENT,
    postgresql_where=_PRESENT,
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("owner", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("body_hash", Text, nullable=False),
    Column("sandbox_id", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
)

# SQLite numbers rows by itself only in a column that is INTEGER to the letter; numbers are never given again.
_NUMBER = BigInteger().with_variant(Integer, "sqlite")

events = Table(
    "events",
    metadata,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),
    Column("at_us", BigInteger, nullable=False),
    Column("owner", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("result", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("detail", Text, nullable=False),
    sqlite_autoincrement=True,
)
Index("events_owner", events.c.owner, events.c.number)
Index("events_target", events.c.target, events.c.number)
Index("events_at", events.c.at_us)

usage_meters = Table(
    "usage_meters",
    metadata,
    Column("sandbox_id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Column("cpu_s", Float, nullable=False),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("disk_bytes", BigInteger, nullable=False),
    Column("egress_bytes", BigInteger, nullable=False),
)

usage_intervals = Table(
    "usage_intervals",
    metadata,
    Column("sandbox_id", Text, primary_key=True),
    Column("begin_us", BigInteger, primary_key=True),
    Column("end_us", BigInteger, nullable=False),
    Column("owner", Text, nullable=False),
    Column("cpu_s", Float, nullable=False),
    Column("memory_gib_s", Float, nullable=False),
    Column("disk_gib_s", Float, nullable=False),
    Column("egress_bytes", BigInteger, nullable=False),
)
Index("usage_intervals_owner", usage_intervals.c.owner, usage_intervals.c.begin_us)

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("secret", Text, nullable=False),
    Column("actions", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("removed_us", BigInteger, nullable=True),
    Column("name", Text, nullable=False, server_default=""),
    Column("enabled", Integer, nullable=False, server_default="1"),
    Column("form", Text, nullable=False, server_default="atoll"),
)
Index("webhooks_owner", webhooks.c.owner)

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("id", Text, primary_key=True),
    Column("webhook_id", Text, nullable=False),
    Column("event_number", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("due_us", BigInteger, nullable=False),
    Column("status", Integer, nullable=True),
    Column("error", Text, nullable=False),
    Column("updated_us", BigInteger, nullable=False),
)
Index("webhook_deliveries_due", webhook_deliveries.c.state, webhook_deliveries.c.due_us)
Index("webhook_deliveries_hook", webhook_deliveries.c.webhook_id, webhook_deliveries.c.event_number)

secrets = Table(
    "secrets",
    metadata,
    Column("owner", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("settings", Text, nullable=False),
    Column("sealed", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("changed_us", BigInteger, nullable=False),
)

sandbox_policies = Table(
    "sandbox_policies",
    metadata,
    Column("sandbox_id", Text, ForeignKey("sandboxes.id", ondelete="CASCADE"), primary_key=True),
    Column("owner", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("placeholders", Text, nullable=False),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("name", Text, nullable=True),
    Column("sandbox_id", Text, nullable=False),
    Column("template", Text, nullable=False),
    Column("cpu", Float, nullable=False),
    Column("memory_limit_bytes", BigInteger, nullable=False),
    Column("disk_limit_bytes", BigInteger, nullable=False),
    Column("pids", Integer, nullable=False),
    Column("has_memory", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("expires_us", BigInteger, nullable=True),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("disk_bytes", BigInteger, nullable=False),
)
Index("snapshots_name", snapshots.c.owner, snapshots.c.name, unique=True)
Index("snapshots_newest", snapshots.c.owner, snapshots.c.created_us, snapshots.c.id)
Index("snapshots_expiry", snapshots.c.expires_us)

volumes = Table(
    "volumes",
    metadata,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("quota_bytes", BigInteger, nullable=False),
    Column("created_us", BigInteger, nullable=False),
)
Index("volumes_name", volumes.c.owner, volumes.c.name, unique=True)

volume_snapshots = Table(
    "volume_snapshots",
    metadata,
    Column("id", Text, primary_key=True),
    Column("volume_id", Text, ForeignKey("volumes.id", ondelete="CASCADE"), nullable=False),
    Column("name", Text, nullable=True),
    Column("created_us", BigInteger, nullable=False),
    Column("used_bytes", BigInteger, nullable=False),
)
Index("volume_snapshots_name", volume_snapshots.c.volume_id, volume_snapshots.c.name, unique=True)
