"""Tenants and their members: made, shown, given quotas, removed with all that they have."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from atoll.control.authz import DEFAULT_OWNER, Principal, check_scopes
from atoll.control.clock import Clock
from atoll.control.events import Events
from atoll.control.keys import Keys, check_key_name
from atoll.control.store import creates
from atoll.control.store import events as event_rows
from atoll.control.store import keys as key_rows
from atoll.control.store import tenants as rows
from atoll.control.store.engine import Store
from atoll.control.store.moments import to_us
from atoll.control.store.tenants import Member as Member
from atoll.control.store.tenants import Tenant as Tenant
from atoll.model import ids, limits
from atoll.model.errors import Conflict, LimitExceeded, NotFound
from atoll.model.event import Event
from atoll.model.quota import Holding, Quota
from atoll.model.sandbox import check_name

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TenantState:
    """A tenant, and what it has now."""

    tenant: Tenant
    holding: Holding


class Tenants:
    """The tenants of one server."""

    def __init__(self, store: Store, clock: Clock, events: Events, keys: Keys) -> None:
        self._store = store
        self._clock = clock
        self._events = events
        self._keys = keys
        self.on_quota: Callable[[], None] = lambda: None
        """Told when a tenant may have more or less than before."""

    async def create(self, by: Principal, tenant_id: str, quota: Quota) -> Tenant:
        check_name("tenant", tenant_id)
        tenant = Tenant(tenant_id, self._clock.now(), quota.checked())
        await self._write(_add, tenant, self._events.of(by, "tenant.created", target=tenant_id))
        return tenant

    async def ensure(self, tenant_id: str) -> None:
        """Make it unless it is there."""
        check_name("tenant", tenant_id)
        await self._store.write(rows.ensure, Tenant(tenant_id, self._clock.now()))

    async def every(self) -> list[Tenant]:
        return await self._store.read(rows.every)

    async def show(self, tenant_id: str) -> TenantState:
        tenant = await self._find(tenant_id)
        return TenantState(tenant, await self._store.read(creates.holding_of_owner, tenant.id, self._clock.now()))

    async def set_quota(self, by: Principal, tenant_id: str, quota: Quota) -> TenantState:
        await self._find(tenant_id)
        await self._write(_set_quota, tenant_id, quota.checked(), self._events.of(by, "tenant.quota", target=tenant_id))
        self._keys.forget()
        self.on_quota()
        return await self.show(tenant_id)

    async def remove(self, by: Principal, tenant_id: str, end_all: Callable[[str], Awaitable[None]]) -> None:
        """Close a tenant: its keys open nothing from now on, and its sandboxes are ended. Its record stays."""
        if tenant_id == DEFAULT_OWNER:
            raise Conflict(f"the tenant {DEFAULT_OWNER!r} is the operator's own and stays", code="tenant_needed")
        await self._find(tenant_id)
        key_ids = await self._write(_remove, tenant_id, self._events.of(by, "tenant.removed", target=tenant_id))
        self._keys.revoked(key_ids)
        await end_all(tenant_id)

    async def member_add(self, by: Principal, owner: str, name: str, scopes: frozenset[str]) -> Member:
        check_key_name(name)
        now = self._clock.now()
        member_id = ids.mint(ids.MEMBER, to_us(now) // 1000, secrets.token_bytes(16))
        member = Member(member_id, owner, name, check_scopes(scopes), now)
        await self._write(
            _member_add,
            member,
            self._events.of(by, "member.added", owner=owner, target=member.id, detail={"name": name}),
        )
        return member

    async def members(self, owner: str) -> list[Member]:
        return await self._store.read(rows.members_of, owner)

    async def member_remove(self, by: Principal, owner: str, reference: str) -> Member:
        """Take a member out, and with it all of its keys."""
        event = self._events.of(by, "member.removed", owner=owner)
        member, key_ids = await self._write(_member_remove, owner, reference, event)
        self._keys.revoked(key_ids)
        return member

    async def _write(
        self, query: Callable[Concatenate[Connection, P], T], *arguments: P.args, **options: P.kwargs
    ) -> T:
        """A change together with its event."""
        answer = await self._store.write(query, *arguments, **options)
        self._events.written()
        return answer

    async def _find(self, tenant_id: str) -> Tenant:
        tenant = await self._store.read(rows.by_id, tenant_id[: limits.NAME_CHARS_MAX + 1])
        if tenant is None or tenant.removed_at is not None:
            raise _no_tenant(tenant_id)
        return tenant


def _no_tenant(tenant_id: str) -> NotFound:
    return NotFound(f"there is no tenant {tenant_id[:80]!r}", code="tenant_not_found")


def _add(connection: Connection, tenant: Tenant, event: Event) -> None:
    if rows.count(connection) >= limits.TENANTS_MAX:
        raise LimitExceeded("there are too many tenants", code="too_many_tenants")
    rows.add(connection, tenant)
    event_rows.add(connection, event)


def _set_quota(connection: Connection, tenant_id: str, quota: Quota, event: Event) -> None:
    if not rows.set_quota(connection, tenant_id, quota):  # it was removed since it was looked for
        raise _no_tenant(tenant_id)
    event_rows.add(connection, event)


def _remove(connection: Connection, tenant_id: str, event: Event) -> list[str]:
    """Close it; which keys it had."""
    if rows.remove(connection, tenant_id, event.at):
        event_rows.add(connection, event)
    return [key.id for key in key_rows.of_owner(connection, tenant_id)]


def _member_add(connection: Connection, member: Member, event: Event) -> None:
    if len(rows.members_of(connection, member.owner)) >= limits.MEMBERS_PER_TENANT_MAX:
        raise LimitExceeded("the tenant has too many members", code="too_many_members")
    rows.member_add(connection, member)
    event_rows.add(connection, event)


def _member_remove(connection: Connection, owner: str, reference: str, event: Event) -> tuple[Member, list[str]]:
    """Who it was, and its keys."""
    member = rows.member(connection, owner, reference)
    if member is None:
        raise NotFound(f"there is no member {reference[:80]!r}", code="member_not_found")
    rows.member_remove(connection, owner, member.id, event.at)
    key_ids = key_rows.revoke_of_member(connection, owner, member.id, event.at)
    event_rows.add(connection, replace(event, target=member.id, detail={"name": member.name}))
    return member, key_ids
