"""Webhooks in E2B's form name E2B's kinds of events beside our actions: one action tells of several kinds."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_KIND = "sandbox.lifecycle."
_NEW = {
    "sandbox.creating": ("sandbox.running", f"{_KIND}created"),
    "sandbox.paused": ("sandbox.paused", f"{_KIND}paused"),
    "sandbox.resuming": ("sandbox.running", f"{_KIND}resumed"),
    "sandbox.deadline": ("sandbox.deadline", f"{_KIND}updated"),
    "sandbox.killed": ("sandbox.killed", f"{_KIND}killed"),
    "sandbox.failed": ("sandbox.failed", f"{_KIND}killed"),
}


def upgrade() -> None:
    connection = op.get_bind()
    webhooks = sa.table("webhooks", sa.column("id", sa.Text), sa.column("form", sa.Text), sa.column("actions", sa.Text))
    old = sa.select(webhooks.c.id, webhooks.c.actions).where(webhooks.c.form == "e2b")
    for hook_id, actions in connection.execute(old).all():
        if _KIND not in actions:
            new = dict.fromkeys(word for action in actions.split() for word in _NEW.get(action, (action,)))
            connection.execute(sa.update(webhooks).where(webhooks.c.id == hook_id).values(actions=" ".join(new)))


def downgrade() -> None:
    """An older version reads the kinds as actions that never come."""
