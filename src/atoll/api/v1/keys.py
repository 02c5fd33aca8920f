"""/v1/keys: make, list, revoke."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import msgspec

from atoll.api.endpoint import Call, Endpoint, Nothing
from atoll.control.authz import ADMIN, OPERATOR, Principal
from atoll.control.keys import KeyRecord, KeySpec
from atoll.model.errors import Forbidden, InvalidArgument, LimitExceeded, NotFound
from atoll.model.quota import Quota
from atoll.wire.public import KeyCreate, KeyCreated, KeyList, KeyView, QuotaView


class TenantQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Whose; another tenant's are for the operator."""

    tenant: str | None = None


def owner_of(principal: Principal, tenant: str | None) -> str:
    """The tenant that is meant. Whether another one exists is the operator's to know."""
    if tenant is not None and tenant != principal.owner:
        principal.check(OPERATOR)
        return tenant
    return principal.owner


async def create(call: Call[KeyCreate, Nothing]) -> KeyCreated:
    body = call.body
    owner = owner_of(call.principal, body.tenant)
    if owner != call.principal.owner:
        await call.control.accounts.tenants.show(owner)
    spec = KeySpec(body.name, frozenset(body.scopes), body.member, _expiry(body), body.quota.quota())
    record, key = await call.control.accounts.keys.create(call.principal, owner, spec)
    return KeyCreated(key=key, view=key_view(record))


async def list_all(call: Call[Nothing, TenantQuery]) -> KeyList:
    records = await call.control.accounts.keys.every(owner_of(call.principal, call.query.tenant))
    return KeyList(items=[key_view(record) for record in records])


async def revoke(call: Call[Nothing, TenantQuery]) -> KeyView:
    owner = owner_of(call.principal, call.query.tenant)
    return key_view(await call.control.accounts.keys.revoke(call.principal, owner, call.path["key"]))


def quota_view(quota: Quota) -> QuotaView:
    return QuotaView(**dataclasses.asdict(quota))


def key_view(record: KeyRecord) -> KeyView:
    return KeyView(
        id=record.id,
        tenant=record.owner,
        name=record.name,
        scopes=sorted(record.scopes),
        member_id=record.member_id,
        quota=quota_view(record.quota),
        created_at=record.created_at,
        expires_at=record.expires_at,
        revoked_at=record.revoked_at,
        last_used_at=record.last_used_at,
    )


def _expiry(body: KeyCreate) -> datetime | None:
    if body.expires_at is not None and body.expires_in_s is not None:
        raise InvalidArgument("expires_at and expires_in_s exclude each other", code="invalid_expiry")
    if body.expires_in_s is not None:
        if not 0 < body.expires_in_s <= 1e9:
            raise InvalidArgument("expires_in_s is not a time in the future", code="invalid_expiry")
        return datetime.now(UTC) + timedelta(seconds=body.expires_in_s)
    if body.expires_at is not None and body.expires_at.tzinfo is None:
        raise InvalidArgument("expires_at has no time zone", code="invalid_expiry", hint="End it with Z for UTC.")
    return body.expires_at


PATH = "/v1/keys"

ENDPOINTS = (
    Endpoint(
        "POST",
        PATH,
        "Make an API key; it is shown this once",
        create,
        body=KeyCreate,
        answer=KeyCreated,
        status=201,
        needs=ADMIN,
        errors=(InvalidArgument, Forbidden, NotFound, LimitExceeded),
    ),
    Endpoint(
        "GET",
        PATH,
        "List the keys of a tenant, also those that no longer open anything, for a month",
        list_all,
        query=TenantQuery,
        answer=KeyList,
        needs=ADMIN,
        errors=(Forbidden,),
    ),
    Endpoint(
        "DELETE",
        PATH + "/{key}",
        "Revoke a key; one that is revoked is shown as it is",
        revoke,
        query=TenantQuery,
        answer=KeyView,
        needs=ADMIN,
        errors=(Forbidden, NotFound),
    ),
)
