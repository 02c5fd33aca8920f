"""How a sandbox is stopped when its budget is spent, why it sleeps, and the log of a start that failed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("sandboxes", sa.Column("budget_action", sa.Text, nullable=False, server_default="kill"))
    op.add_column("sandboxes", sa.Column("sleep_reason", sa.Text, nullable=True))
    op.create_table(
        "start_logs",
        sa.Column("sandbox_id", sa.Text, sa.ForeignKey("sandboxes.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("log", sa.Text, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("start_logs")
    for column in ("budget_action", "sleep_reason"):
        op.drop_column("sandboxes", column)
