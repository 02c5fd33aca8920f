"""Named queries about API keys and who they speak for. Only hashes are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, bindparam, delete, func, insert, or_, select, update

from atoll.control.store.moments import from_us, from_us_or_none, to_us, to_us_or_none
from atoll.control.store.quotas import quota_read, quota_write
from atoll.control.store.schema import api_keys, members, tenants
from atoll.model.quota import Quota


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What is known about a key; the key itself is not."""

    id: str
    owner: str
    name: str
    hash: str
    scopes: frozenset[str]
    created_at: datetime
    member_id: str | None = None
    quota: Quota = field(default_factory=Quota)
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Bearer:
    """A key together with the tenant, and the member if there is one, that it speaks for."""

    key: KeyRecord
    tenant_quota: Quota
    tenant_removed: bool
    member_scopes: frozenset[str] | None
    """What the member may do: its keys can do no more. None for a key of the tenant itself."""


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
            "member_id": record.member_id,
            "quota": quota_write(record.quota),
            "expires_us": to_us_or_none(record.expires_at),
            "revoked_us": None,
            "last_used_us": None,
        },
    )


def bearer(connection: Connection, key_hash: str) -> Bearer | None:
    """The key with this hash, and whom it speaks for."""
    return _bearer(connection.execute(_BY_HASH, {"hash": key_hash}).one_or_none())


def bearer_by_id(connection: Connection, owner: str, key_id: str) -> Bearer | None:
    """This key of a tenant, and whom it speaks for."""
    wanted = _BEARER.where(api_keys.c.owner == owner, api_keys.c.id == key_id)
    return _bearer(connection.execute(wanted).one_or_none())


def _bearer(row: Row[Any] | None) -> Bearer | None:
    if row is None:
        return None
    scopes = None
    if row.member_id is not None:
        # A member that has been removed may do nothing, and so may its keys.
        scopes = frozenset() if row.member_removed_us is not None else frozenset((row.member_scopes or "").split())
    return Bearer(_from_row(row), quota_read(row.tenant_quota), row.tenant_removed_us is not None, scopes)


def by_hash(connection: Connection, key_hash: str) -> KeyRecord | None:
    row = connection.execute(select(api_keys).where(api_keys.c.hash == key_hash)).one_or_none()
    return _from_row(row) if row else None


def by_id(connection: Connection, owner: str, key_id: str) -> KeyRecord | None:
    wanted = select(api_keys).where(api_keys.c.owner == owner, api_keys.c.id == key_id)
    row = connection.execute(wanted).one_or_none()
    return _from_row(row) if row else None


def of_owner(connection: Connection, owner: str) -> list[KeyRecord]:
    """All keys of a tenant, also those that no longer open anything, oldest first."""
    wanted = select(api_keys).where(api_keys.c.owner == owner).order_by(api_keys.c.created_us, api_keys.c.id)
    return [_from_row(row) for row in connection.execute(wanted)]


def count(connection: Connection) -> int:
    return connection.execute(select(func.count()).select_from(api_keys)).scalar_one()


def count_valid(connection: Connection, owner: str, now: datetime) -> int:
    """Keys of a tenant that open something now."""
    wanted = select(func.count()).where(
        api_keys.c.owner == owner,
        api_keys.c.revoked_us.is_(None),
        or_(api_keys.c.expires_us.is_(None), api_keys.c.expires_us > to_us(now)),
    )
    return connection.execute(wanted).scalar_one()


def forget_ended(connection: Connection, before: datetime, kept_hash: str) -> int:
    """Remove what was revoked or has expired before some moment; how many those were."""
    gone = delete(api_keys).where(_ended_at <= to_us(before), *_forgettable(kept_hash))
    return connection.execute(gone).rowcount


def trim_ended(connection: Connection, owner: str, now: datetime, rows_max: int, kept_hash: str) -> None:
    """Remove all of what a tenant has revoked, or what has expired, but so many, the newest."""
    ended = select(api_keys.c.id).where(api_keys.c.owner == owner, _ended_at <= to_us(now), *_forgettable(kept_hash))
    oldest = ended.order_by(_ended_at.desc(), api_keys.c.id.desc()).offset(rows_max)
    connection.execute(delete(api_keys).where(api_keys.c.id.in_(oldest)))


def _forgettable(kept_hash: str) -> tuple[ColumnElement[bool], ...]:
    """Not the first key of all, nor the one in the server's file: at the next start they would be taken for new."""
    return (api_keys.c.hash != kept_hash, api_keys.c.id != select(func.min(api_keys.c.id)).scalar_subquery())


def revoke(connection: Connection, owner: str, key_id: str, now: datetime) -> bool:
    """Revoke a key of this tenant; says whether it was not revoked before."""
    statement = (
        update(api_keys)
        .where(api_keys.c.owner == owner, api_keys.c.id == key_id, api_keys.c.revoked_us.is_(None))
        .values(revoked_us=to_us(now))
    )
    return connection.execute(statement).rowcount == 1


def revoke_of_member(connection: Connection, owner: str, member_id: str, now: datetime) -> list[str]:
    """Revoke the keys of a member; which those were."""
    theirs = (api_keys.c.owner == owner) & (api_keys.c.member_id == member_id) & api_keys.c.revoked_us.is_(None)
    key_ids = list(connection.scalars(select(api_keys.c.id).where(theirs)))
    connection.execute(update(api_keys).where(theirs).values(revoked_us=to_us(now)))
    return key_ids


def note_used(connection: Connection, used: Mapping[str, datetime]) -> None:
    """When keys were last used; a later moment that another process has written stays."""
    if not used:
        return
    statement = (
        update(api_keys)
        .where(
            api_keys.c.id == bindparam("key_id"),
            or_(api_keys.c.last_used_us.is_(None), api_keys.c.last_used_us < bindparam("used_us")),
        )
        .values(last_used_us=bindparam("used_us"))
    )
    connection.execute(statement, [{"key_id": key_id, "used_us": to_us(at)} for key_id, at in used.items()])


def _from_row(row: Row[Any]) -> KeyRecord:
    return KeyRecord(
        id=row.id,
        owner=row.owner,
        name=row.name,
        hash=row.hash,
        scopes=frozenset(row.scopes.split()),
        created_at=from_us(row.created_us),
        member_id=row.member_id,
        quota=quota_read(row.quota),
        expires_at=from_us_or_none(row.expires_us),
        revoked_at=from_us_or_none(row.revoked_us),
        last_used_at=from_us_or_none(row.last_used_us),
    )


_ended_at = func.coalesce(api_keys.c.revoked_us, api_keys.c.expires_us)
_BEARER = (
    select(
        api_keys,
        tenants.c.quota.label("tenant_quota"),
        tenants.c.removed_us.label("tenant_removed_us"),
        members.c.scopes.label("member_scopes"),
        members.c.removed_us.label("member_removed_us"),
    )
    .join(tenants, tenants.c.id == api_keys.c.owner)
    .outerjoin(members, members.c.id == api_keys.c.member_id)
)
_BY_HASH = _BEARER.where(api_keys.c.hash == bindparam("hash"))
