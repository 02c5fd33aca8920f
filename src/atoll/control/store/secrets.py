"""Named queries about secrets. Values are sealed before they come here and opened after they have left."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, bindparam, delete, func, insert, select, update

from atoll.control.store.moments import from_us, to_us
from atoll.control.store.schema import secrets
from atoll.model.errors import Conflict
from atoll.model.secret import Secret


@dataclass(frozen=True, slots=True)
class SealedSecret:
    """A secret and its sealed value."""

    owner: str
    secret: Secret
    sealed: str


def put(
    connection: Connection, owner: str, secret: Secret, sealed: str | None, now: datetime, *, fresh: bool = False
) -> SealedSecret | None:
    """Add or replace a secret; without a value the one that is there stays. None if there is none to stay.

    With `fresh` there must be none: Conflict (name_taken).
    """
    known = get(connection, owner, secret.name)
    if fresh and known is not None:
        raise Conflict(f"a secret is already named {secret.name[:80]!r}", code="name_taken", hint="Update that one.")
    if known is None and sealed is None:
        return None
    settings = msgspec.json.encode(_settings(secret)).decode()
    if known is None:
        row = {"owner": owner, "name": secret.name, "settings": settings, "sealed": sealed, "version": 1}
        connection.execute(insert(secrets), {**row, "created_us": to_us(now), "changed_us": to_us(now)})
    else:
        changes = {"settings": settings, "sealed": sealed or known.sealed, "changed_us": to_us(now)}
        version = known.secret.version + (1 if sealed else 0)
        connection.execute(
            update(secrets).where(secrets.c.owner == owner, secrets.c.name == secret.name),
            {**changes, "version": version},
        )
    return get(connection, owner, secret.name)


def get(connection: Connection, owner: str, name: str) -> SealedSecret | None:
    row = connection.execute(_ONE, {"owner": owner, "name": name}).one_or_none()
    return _from_row(row) if row else None


def owned(connection: Connection, owner: str) -> list[SealedSecret]:
    rows = connection.execute(select(secrets).where(secrets.c.owner == owner).order_by(secrets.c.name))
    return [_from_row(row) for row in rows]


def everything(connection: Connection) -> list[SealedSecret]:
    """The secrets of all owners, to be sealed anew."""
    return [_from_row(row) for row in connection.execute(select(secrets))]


def count(connection: Connection, owner: str) -> int:
    return connection.execute(select(func.count()).select_from(secrets).where(secrets.c.owner == owner)).scalar_one()


def reseal(connection: Connection, owner: str, name: str, before: str, after: str) -> bool:
    """Replace a sealed value if it is still the same one."""
    statement = update(secrets).where(secrets.c.owner == owner, secrets.c.name == name, secrets.c.sealed == before)
    return connection.execute(statement, {"sealed": after}).rowcount == 1


def remove(connection: Connection, owner: str, name: str) -> bool:
    statement = delete(secrets).where(secrets.c.owner == owner, secrets.c.name == name)
    return connection.execute(statement).rowcount == 1


def _settings(secret: Secret) -> dict[str, Any]:
    kept = ("hosts", "env", "path", "header", "format", "query", "basic", "by_rule", "metadata")
    return {name: getattr(secret, name) for name in kept}


def _from_row(row: Row[Any]) -> SealedSecret:
    settings = msgspec.json.decode(row.settings)
    settings["hosts"] = tuple(settings["hosts"])
    secret = Secret(
        name=row.name,
        version=row.version,
        created_at=from_us(row.created_us),
        changed_at=from_us(row.changed_us),
        **settings,
    )
    return SealedSecret(row.owner, secret, row.sealed)


_ONE = select(secrets).where(secrets.c.owner == bindparam("owner"), secrets.c.name == bindparam("name"))
