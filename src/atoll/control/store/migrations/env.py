"""Alembic's entry point; the connection comes from `control.store.engine`, which holds the transaction."""

from __future__ import annotations

from alembic import context

from atoll.control.store.schema import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
