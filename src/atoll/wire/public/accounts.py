"""Bodies about callers: tenants, members, keys and quotas."""

from __future__ import annotations

from datetime import datetime

import msgspec

from atoll.model.quota import Quota
from atoll.wire.public.base import Answer, Request


class QuotaBody(Request):
    """What may be had at once and how fast; what is left out has no limit. Budgets are for one calendar month."""

    sandboxes: int | None = None
    cpu: float | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    creates_per_minute: int | None = None
    requests_per_second: float | None = None
    budget_s: float | None = None
    budget_money: float | None = None

    def quota(self) -> Quota:
        return Quota(**msgspec.structs.asdict(self))


class QuotaView(Answer):
    sandboxes: int | None
    cpu: float | None
    memory_bytes: int | None
    disk_bytes: int | None
    creates_per_minute: int | None
    requests_per_second: float | None
    budget_s: float | None
    budget_money: float | None


class TenantCreate(Request):
    """Make a tenant; its name cannot be changed, and is never given again."""

    name: str
    quota: QuotaBody = msgspec.field(default_factory=QuotaBody)


class HoldingView(Answer):
    """What a tenant has now."""

    sandboxes: int
    cpu: float
    memory_bytes: int
    disk_bytes: int


class TenantView(Answer):
    name: str
    created_at: datetime
    quota: QuotaView
    holding: HoldingView | None = None


class TenantList(Answer):
    items: list[TenantView]


class MemberCreate(Request):
    """Add a member. Its keys can do no more than its scopes say."""

    name: str
    scopes: list[str] = msgspec.field(default_factory=lambda: ["read", "write"])


class MemberView(Answer):
    id: str
    name: str
    scopes: list[str]
    created_at: datetime


class MemberList(Answer):
    items: list[MemberView]


class KeyCreate(Request):
    """Make a key. `tenant` is for the operator: without it the key is one of the caller's own tenant."""

    name: str
    scopes: list[str] = msgspec.field(default_factory=lambda: ["read", "write"])
    tenant: str | None = None
    member: str | None = None
    expires_at: datetime | None = None
    expires_in_s: float | None = None
    quota: QuotaBody = msgspec.field(default_factory=QuotaBody)


class KeyView(Answer):
    """A key, without the key itself, of which only a hash is kept."""

    id: str
    tenant: str
    name: str
    scopes: list[str]
    member_id: str | None
    quota: QuotaView
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class KeyCreated(Answer):
    """A new key, shown this once."""

    key: str
    view: KeyView


class KeyList(Answer):
    items: list[KeyView]
