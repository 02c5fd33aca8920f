"""Named queries about API keys. Only hashes are stored."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, insert, select

from atoll.control.store.moments import from_us, to_us
from atoll.control.store.schema import api_keys


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What is known about a key; the key itself is not."""

    id: str
    owner: str
    name: str
    hash: str
    scopes: frozenset[str]
    created_at: datetime


def add(connection: Connection, record: KeyRecord) -> None:
    connection.execute(
        insert(api_keys),
        {
            "id": record.id,
            "owner": record.owner,
            "name": record.name,
            "hash": record.hash,
            "scopes": " ".join(sorted(record.scopes)),
            "created_us": to_us(record.created_at),
        },
    )


def by_hash(connection: Connection, key_hash: str) -> KeyRecord | None:
    row = connection.execute(_BY_HASH, {"hash": key_hash}).one_or_none()
    return _from_row(row) if row else None


def count(connection: Connection) -> int:
    return connection.execute(select(func.count()).select_from(api_keys)).scalar_one()


def _from_row(row: Row[Any]) -> KeyRecord:
    return KeyRecord(
        id=row.id,
        owner=row.owner,
        name=row.name,
        hash=row.hash,
        scopes=frozenset(row.scopes.split()),
        created_at=from_us(row.created_us),
    )


_BY_HASH = select(api_keys).where(api_keys.c.hash == bindparam("hash"))
