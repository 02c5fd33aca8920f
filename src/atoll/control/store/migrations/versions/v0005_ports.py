"""Who may reach which port of a sandbox."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sandbox_ports",
        sa.Column("sandbox_id", sa.Text, sa.ForeignKey("sandboxes.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("port", sa.Integer, primary_key=True),
        sa.Column("public", sa.Integer, nullable=False),
        sa.Column("mask_host", sa.Text, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("sandbox_ports")
