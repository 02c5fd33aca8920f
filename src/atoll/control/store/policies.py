"""Named queries about the policy of each sandbox and the secrets that it was given. No row: nothing is allowed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, delete, select

from atoll.control.store.prepared import adding
from atoll.control.store.schema import sandbox_policies, sandboxes
from atoll.model.policy import Policy


@dataclass(frozen=True, slots=True)
class NetworkRecord:
    """A sandbox's policy, and for each secret that it has the placeholder that stands for it inside."""

    sandbox_id: str
    owner: str
    policy: Policy = field(default_factory=Policy)
    placeholders: dict[str, str] = field(default_factory=dict)


def put(connection: Connection, record: NetworkRecord) -> None:
    """Replace what is known."""
    connection.execute(delete(sandbox_policies).where(sandbox_policies.c.sandbox_id == record.sandbox_id))
    add(connection, record)


def add(connection: Connection, record: NetworkRecord) -> None:
    """That of a sandbox of which nothing is known."""
    row = {
        "sandbox_id": record.sandbox_id,
        "owner": record.owner,
        "policy": msgspec.json.encode(record.policy).decode(),
        "placeholders": msgspec.json.encode(record.placeholders).decode(),
    }
    _ADD.change(connection, row)


def get(connection: Connection, sandbox_id: str) -> NetworkRecord | None:
    query = select(sandbox_policies).where(sandbox_policies.c.sandbox_id == sandbox_id)
    row = connection.execute(query).one_or_none()
    return _from_row(row) if row else None


def live(connection: Connection, owner: str | None = None) -> list[NetworkRecord]:
    """Those of sandboxes that have not ended; of one owner, or of all."""
    query = select(sandbox_policies).join(sandboxes, sandboxes.c.id == sandbox_policies.c.sandbox_id)
    query = query.where(sandboxes.c.ended_us.is_(None))
    if owner is not None:
        query = query.where(sandbox_policies.c.owner == owner)
    return [_from_row(row) for row in connection.execute(query)]


def _from_row(row: Row[Any]) -> NetworkRecord:
    return NetworkRecord(
        sandbox_id=row.sandbox_id,
        owner=row.owner,
        policy=msgspec.json.decode(row.policy, type=Policy),
        placeholders=msgspec.json.decode(row.placeholders, type=dict[str, str]),
    )


_ADD = adding(sandbox_policies)
