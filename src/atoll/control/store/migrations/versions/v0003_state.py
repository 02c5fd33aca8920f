"""Snapshots and volumes, and what a sandbox does when it is not used."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for column in (
        sa.Column("timeout_s", sa.Float, nullable=False, server_default="300"),
        sa.Column("idle_timeout_s", sa.Float, nullable=True),
        sa.Column("auto_resume", sa.Integer, nullable=False, server_default="0"),
        sa.Column("volumes", sa.Text, nullable=False, server_default="[]"),
        sa.Column("snapshot_id", sa.Text, nullable=True),
    ):
        op.add_column("sandboxes", column)
    op.create_table(
        "snapshots",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=True),
        sa.Column("sandbox_id", sa.Text, nullable=False),
        sa.Column("template", sa.Text, nullable=False),
        sa.Column("cpu", sa.Float, nullable=False),
        sa.Column("memory_limit_bytes", sa.BigInteger, nullable=False),
        sa.Column("disk_limit_bytes", sa.BigInteger, nullable=False),
        sa.Column("pids", sa.Integer, nullable=False),
        sa.Column("has_memory", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("expires_us", sa.BigInteger, nullable=True),
        sa.Column("memory_bytes", sa.BigInteger, nullable=False),
        sa.Column("disk_bytes", sa.BigInteger, nullable=False),
    )
    op.create_index("snapshots_name", "snapshots", ["owner", "name"], unique=True)
    op.create_index("snapshots_newest", "snapshots", ["owner", "created_us", "id"])
    op.create_index("snapshots_expiry", "snapshots", ["expires_us"])
    op.create_table(
        "volumes",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("quota_bytes", sa.BigInteger, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
    )
    op.create_index("volumes_name", "volumes", ["owner", "name"], unique=True)


def downgrade() -> None:
    op.drop_table("volumes")
    op.drop_table("snapshots")
    for column in ("timeout_s", "idle_timeout_s", "auto_resume", "volumes", "snapshot_id"):
        op.drop_column("sandboxes", column)
