"""Snapshots of volumes, and webhooks with a name, a switch and words of their own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "volume_snapshots",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("volume_id", sa.Text, sa.ForeignKey("volumes.id", ondelete="CASCADE"), nullable=False),
        sa.Column("name", sa.Text, nullable=True),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("used_bytes", sa.BigInteger, nullable=False),
    )
    op.create_index("volume_snapshots_name", "volume_snapshots", ["volume_id", "name"], unique=True)
    op.add_column("webhooks", sa.Column("name", sa.Text, nullable=False, server_default=""))
    op.add_column("webhooks", sa.Column("enabled", sa.Integer, nullable=False, server_default="1"))
    op.add_column("webhooks", sa.Column("form", sa.Text, nullable=False, server_default="atoll"))


def downgrade() -> None:
    for column in ("name", "enabled", "form"):
        op.drop_column("webhooks", column)
    op.drop_table("volume_snapshots")
