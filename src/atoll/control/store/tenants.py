"""Named queries about tenants and their members."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from atoll.control.store.moments import from_us, from_us_or_none, to_us
from atoll.control.store.quotas import quota_read, quota_write
from atoll.control.store.schema import members, tenants
from atoll.model.errors import Conflict
from atoll.model.quota import Quota


@dataclass(frozen=True, slots=True)
class Tenant:
    """Whose things are kept apart from everybody else's."""

    id: str
    created_at: datetime
    quota: Quota = field(default_factory=Quota)
    removed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """Somebody who may have keys of a tenant, and what those may do at most."""

    id: str
    owner: str
    name: str
    scopes: frozenset[str]
    created_at: datetime


def add(connection: Connection, tenant: Tenant) -> None:
    """A new tenant; Conflict if there is one of this name, or ever was: what it had must not change hands."""
    try:
        connection.execute(
            insert(tenants),
            {
                "id": tenant.id,
                "quota": quota_write(tenant.quota),
                "created_us": to_us(tenant.created_at),
                "removed_us": None,
            },
        )
    except IntegrityError as error:
        raise Conflict(
            f"there is a tenant {tenant.id!r}, or was one",
            code="tenant_exists",
            hint="Choose another name: one that has been used is not given again.",
        ) from error


def ensure(connection: Connection, tenant: Tenant) -> None:
    """Make it unless it is there."""
    if connection.execute(select(tenants.c.id).where(tenants.c.id == tenant.id)).one_or_none() is None:
        add(connection, tenant)


def by_id(connection: Connection, tenant_id: str) -> Tenant | None:
    row = connection.execute(select(tenants).where(tenants.c.id == tenant_id)).one_or_none()
    return _from_row(row) if row else None


def every(connection: Connection) -> list[Tenant]:
    """All tenants that have not been removed."""
    wanted = select(tenants).where(tenants.c.removed_us.is_(None)).order_by(tenants.c.id)
    return [_from_row(row) for row in connection.execute(wanted)]


def count(connection: Connection) -> int:
    """Those that have not been removed."""
    return connection.execute(select(func.count()).where(tenants.c.removed_us.is_(None))).scalar_one()


def set_quota(connection: Connection, tenant_id: str, quota: Quota) -> bool:
    statement = (
        update(tenants)
        .where(tenants.c.id == tenant_id, tenants.c.removed_us.is_(None))
        .values(quota=quota_write(quota))
    )
    return connection.execute(statement).rowcount == 1


def remove(connection: Connection, tenant_id: str, now: datetime) -> bool:
    """Close a tenant; its record stays. Says whether it was open."""
    statement = (
        update(tenants).where(tenants.c.id == tenant_id, tenants.c.removed_us.is_(None)).values(removed_us=to_us(now))
    )
    return connection.execute(statement).rowcount == 1


def member_add(connection: Connection, member: Member) -> None:
    try:
        connection.execute(
            insert(members),
            {
                "id": member.id,
                "owner": member.owner,
                "name": member.name,
                "scopes": " ".join(sorted(member.scopes)),
                "created_us": to_us(member.created_at),
                "removed_us": None,
            },
        )
    except IntegrityError as error:
        raise Conflict(f"there is a member {member.name!r} already", code="member_exists") from error


def members_of(connection: Connection, owner: str) -> list[Member]:
    wanted = select(members).where(members.c.owner == owner, members.c.removed_us.is_(None)).order_by(members.c.name)
    return [_member(row) for row in connection.execute(wanted)]


def member(connection: Connection, owner: str, reference: str) -> Member | None:
    """A member by id or by name."""
    wanted = select(members).where(
        members.c.owner == owner,
        members.c.removed_us.is_(None),
        (members.c.id == reference) | (members.c.name == reference),
    )
    row = connection.execute(wanted).first()
    return _member(row) if row else None


def member_remove(connection: Connection, owner: str, member_id: str, now: datetime) -> bool:
    statement = (
        update(members)
        .where(members.c.owner == owner, members.c.id == member_id, members.c.removed_us.is_(None))
        .values(removed_us=to_us(now))
    )
    return connection.execute(statement).rowcount == 1


def _from_row(row: Row[Any]) -> Tenant:
    return Tenant(row.id, from_us(row.created_us), quota_read(row.quota), from_us_or_none(row.removed_us))


def _member(row: Row[Any]) -> Member:
    return Member(row.id, row.owner, row.name, frozenset(row.scopes.split()), from_us(row.created_us))
