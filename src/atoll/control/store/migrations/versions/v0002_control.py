"""Tenants, members, quotas, idempotent creates, audit, usage and webhooks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_PRESENT = sa.text("removed_us IS NULL")


def upgrade() -> None:
    _widen()
    _tenants()
    _audit()
    _usage()
    _webhooks()


def _widen() -> None:
    for column in (
        sa.Column("key_id", sa.Text, nullable=False, server_default=""),
        sa.Column("external_id", sa.Text, nullable=True),
        sa.Column("deadline_action", sa.Text, nullable=False, server_default="kill"),
        sa.Column("budget_s", sa.Float, nullable=True),
        sa.Column("budget_money", sa.Float, nullable=True),
    ):
        op.add_column("sandboxes", column)
    op.create_index("sandboxes_external", "sandboxes", ["owner", "external_id"], unique=True)
    op.create_index("sandboxes_by_key", "sandboxes", ["key_id", "created_us"])
    for column in (
        sa.Column("member_id", sa.Text, nullable=True),
        sa.Column("quota", sa.Text, nullable=False, server_default="{}"),
        sa.Column("expires_us", sa.BigInteger, nullable=True),
        sa.Column("revoked_us", sa.BigInteger, nullable=True),
        sa.Column("last_used_us", sa.BigInteger, nullable=True),
    ):
        op.add_column("api_keys", column)
    op.create_index("api_keys_owner", "api_keys", ["owner", "created_us"])


def _tenants() -> None:
    op.create_table(
        "tenants",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("quota", sa.Text, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("removed_us", sa.BigInteger, nullable=True),
    )
    # Every owner that there was is a tenant from now on, as old as the first thing that it has.
    op.execute(
        "INSERT INTO tenants (id, quota, created_us) SELECT owner, '{}', MIN(created_us) FROM "
        "(SELECT owner, created_us FROM api_keys UNION ALL SELECT owner, created_us FROM sandboxes) AS known "
        "GROUP BY owner"
    )
    op.create_table(
        "members",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("removed_us", sa.BigInteger, nullable=True),
    )
    op.create_index(
        "members_name", "members", ["owner", "name"], unique=True, sqlite_where=_PRESENT, postgresql_where=_PRESENT
    )
    op.create_table(
        "idempotency",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("body_hash", sa.Text, nullable=False),
        sa.Column("sandbox_id", sa.Text, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
    )


def _audit() -> None:
    op.create_table(
        "events",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("at_us", sa.BigInteger, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("result", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("events_owner", "events", ["owner", "number"])
    op.create_index("events_target", "events", ["target", "number"])
    op.create_index("events_at", "events", ["at_us"])


def _usage() -> None:
    op.create_table(
        "usage_meters",
        sa.Column("sandbox_id", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("at_us", sa.BigInteger, nullable=False),
        sa.Column("cpu_s", sa.Float, nullable=False),
        sa.Column("memory_bytes", sa.BigInteger, nullable=False),
        sa.Column("disk_bytes", sa.BigInteger, nullable=False),
        sa.Column("egress_bytes", sa.BigInteger, nullable=False),
    )
    # Sandboxes that run are counted from their start on, as if the meter had always been there.
    op.execute(
        "INSERT INTO usage_meters (sandbox_id, owner, at_us, cpu_s, memory_bytes, disk_bytes, egress_bytes) "
        "SELECT id, owner, started_us, 0, 0, 0, 0 FROM sandboxes WHERE state = 'running' AND started_us IS NOT NULL"
    )
    op.create_table(
        "usage_intervals",
        sa.Column("sandbox_id", sa.Text, primary_key=True),
        sa.Column("begin_us", sa.BigInteger, primary_key=True),
        sa.Column("end_us", sa.BigInteger, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("cpu_s", sa.Float, nullable=False),
        sa.Column("memory_gib_s", sa.Float, nullable=False),
        sa.Column("disk_gib_s", sa.Float, nullable=False),
        sa.Column("egress_bytes", sa.BigInteger, nullable=False),
    )
    op.create_index("usage_intervals_owner", "usage_intervals", ["owner", "begin_us"])


def _webhooks() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("secret", sa.Text, nullable=False),
        sa.Column("actions", sa.Text, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("removed_us", sa.BigInteger, nullable=True),
    )
    op.create_index("webhooks_owner", "webhooks", ["owner"])
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("webhook_id", sa.Text, nullable=False),
        sa.Column("event_number", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due_us", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Integer, nullable=True),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("updated_us", sa.BigInteger, nullable=False),
    )
    op.create_index("webhook_deliveries_due", "webhook_deliveries", ["state", "due_us"])
    op.create_index("webhook_deliveries_hook", "webhook_deliveries", ["webhook_id", "event_number"])


def downgrade() -> None:
    for table in ("webhook_deliveries", "webhooks", "usage_intervals", "usage_meters", "events"):
        op.drop_table(table)
    for table in ("idempotency", "members", "tenants"):
        op.drop_table(table)
    op.drop_index("api_keys_owner", "api_keys")
    for column in ("member_id", "quota", "expires_us", "revoked_us", "last_used_us"):
        op.drop_column("api_keys", column)
    op.drop_index("sandboxes_by_key", "sandboxes")
    op.drop_index("sandboxes_external", "sandboxes")
    for column in ("key_id", "external_id", "deadline_action", "budget_s", "budget_money"):
        op.drop_column("sandboxes", column)
