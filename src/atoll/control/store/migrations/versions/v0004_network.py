"""Policies and secrets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "secrets",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("settings", sa.Text, nullable=False),
        sa.Column("sealed", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("changed_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "sandbox_policies",
        sa.Column("sandbox_id", sa.Text, sa.ForeignKey("sandboxes.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("policy", sa.Text, nullable=False),
        sa.Column("placeholders", sa.Text, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("sandbox_policies")
    op.drop_table("secrets")
