"""The first tables: sandboxes, their metadata, and API keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sandboxes",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("template", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=True),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("cpu", sa.Float, nullable=False),
        sa.Column("memory_bytes", sa.BigInteger, nullable=False),
        sa.Column("disk_bytes", sa.BigInteger, nullable=False),
        sa.Column("pids", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("started_us", sa.BigInteger, nullable=True),
        sa.Column("deadline_us", sa.BigInteger, nullable=False),
        sa.Column("ended_us", sa.BigInteger, nullable=True),
        sa.Column("end_reason", sa.Text, nullable=True),
        sa.Column("end_detail", sa.Text, nullable=False),
    )
    live = sa.text("ended_us IS NULL")
    op.create_index(
        "sandboxes_live_name", "sandboxes", ["owner", "name"], unique=True, sqlite_where=live, postgresql_where=live
    )
    op.create_index("sandboxes_newest", "sandboxes", ["owner", "created_us", "id"])
    op.create_index("sandboxes_live_deadline", "sandboxes", ["deadline_us"], sqlite_where=live, postgresql_where=live)
    op.create_table(
        "sandbox_metadata",
        sa.Column("sandbox_id", sa.Text, sa.ForeignKey("sandboxes.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False, unique=True),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("api_keys")
    op.drop_table("sandbox_metadata")
    op.drop_table("sandboxes")
