"""/v1/tenants and /v1/members: who shares a server, what they may have, and who speaks for them."""

from __future__ import annotations

from atoll.api.endpoint import Call, Endpoint, Nothing
from atoll.api.v1.keys import TenantQuery, owner_of, quota_view
from atoll.control.authz import ADMIN, OPERATOR
from atoll.control.tenants import Member, Tenant, TenantState
from atoll.model.errors import Conflict, Forbidden, InvalidArgument, LimitExceeded, NotFound
from atoll.wire.public import (
    HoldingView,
    MemberCreate,
    MemberList,
    MemberView,
    QuotaBody,
    TenantCreate,
    TenantList,
    TenantView,
)


async def create(call: Call[TenantCreate, Nothing]) -> TenantView:
    body = call.body
    return _tenant(await call.control.accounts.tenants.create(call.principal, body.name, body.quota.quota()))


async def list_all(call: Call[Nothing, Nothing]) -> TenantList:
    return TenantList(items=[_tenant(one) for one in await call.control.accounts.tenants.every()])


async def show(call: Call[Nothing, Nothing]) -> TenantView:
    """A tenant may see itself; all others are the operator's to see."""
    name = owner_of(call.principal, call.path["tenant"])
    return _state(await call.control.accounts.tenants.show(name))


async def set_quota(call: Call[QuotaBody, Nothing]) -> TenantView:
    tenants = call.control.accounts.tenants
    return _state(await tenants.set_quota(call.principal, call.path["tenant"], call.body.quota()))


async def remove(call: Call[Nothing, Nothing]) -> None:
    await call.control.tenant_remove(call.principal, call.path["tenant"])


async def member_add(call: Call[MemberCreate, TenantQuery]) -> MemberView:
    owner = owner_of(call.principal, call.query.tenant)
    if owner != call.principal.owner:
        await call.control.accounts.tenants.show(owner)
    tenants = call.control.accounts.tenants
    return _member(await tenants.member_add(call.principal, owner, call.body.name, frozenset(call.body.scopes)))


async def members(call: Call[Nothing, TenantQuery]) -> MemberList:
    found = await call.control.accounts.tenants.members(owner_of(call.principal, call.query.tenant))
    return MemberList(items=[_member(one) for one in found])


async def member_remove(call: Call[Nothing, TenantQuery]) -> MemberView:
    owner = owner_of(call.principal, call.query.tenant)
    return _member(await call.control.accounts.tenants.member_remove(call.principal, owner, call.path["member"]))


def _tenant(tenant: Tenant) -> TenantView:
    return TenantView(name=tenant.id, created_at=tenant.created_at, quota=quota_view(tenant.quota))


def _state(state: TenantState) -> TenantView:
    view = _tenant(state.tenant)
    held = state.holding
    view.holding = HoldingView(
        sandboxes=held.sandboxes, cpu=held.cpu, memory_bytes=held.memory_bytes, disk_bytes=held.disk_bytes
    )
    return view


def _member(member: Member) -> MemberView:
    return MemberView(id=member.id, name=member.name, scopes=sorted(member.scopes), created_at=member.created_at)


PATH = "/v1/tenants"
ONE = PATH + "/{tenant}"
MEMBERS = "/v1/members"

ENDPOINTS = (
    Endpoint(
        "POST",
        PATH,
        "Make a tenant (operator)",
        create,
        body=TenantCreate,
        answer=TenantView,
        status=201,
        needs=OPERATOR,
        errors=(InvalidArgument, Forbidden, Conflict, LimitExceeded),
    ),
    Endpoint(
        "GET", PATH, "List the tenants (operator)", list_all, answer=TenantList, needs=OPERATOR, errors=(Forbidden,)
    ),
    Endpoint(
        "GET",
        ONE,
        "Show a tenant and what it has; one's own, or any to the operator",
        show,
        answer=TenantView,
        errors=(Forbidden, NotFound),
    ),
    Endpoint(
        "PUT",
        ONE + "/quota",
        "Say what a tenant may have (operator)",
        set_quota,
        body=QuotaBody,
        answer=TenantView,
        needs=OPERATOR,
        errors=(InvalidArgument, Forbidden, NotFound),
    ),
    Endpoint(
        "DELETE",
        ONE,
        "Remove a tenant: its keys open nothing any more, its sandboxes are ended, and what it kept goes (operator)",
        remove,
        needs=OPERATOR,
        errors=(Forbidden, NotFound, Conflict),
    ),
    Endpoint(
        "POST",
        MEMBERS,
        "Add a member to a tenant",
        member_add,
        body=MemberCreate,
        query=TenantQuery,
        answer=MemberView,
        status=201,
        needs=ADMIN,
        errors=(InvalidArgument, Forbidden, NotFound, Conflict, LimitExceeded),
    ),
    Endpoint(
        "GET",
        MEMBERS,
        "List the members of a tenant",
        members,
        query=TenantQuery,
        answer=MemberList,
        needs=ADMIN,
        errors=(Forbidden,),
    ),
    Endpoint(
        "DELETE",
        MEMBERS + "/{member}",
        "Remove a member, by id or name, and revoke its keys",
        member_remove,
        query=TenantQuery,
        answer=MemberView,
        needs=ADMIN,
        errors=(Forbidden, NotFound),
    ),
)
