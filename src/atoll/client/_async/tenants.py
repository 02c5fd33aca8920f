"""Tenants and their members."""

from __future__ import annotations

from collections.abc import Sequence

from atoll.client import _exchange as exchange
from atoll.client._async.asking import ask, tell
from atoll.wire.public import (
    MemberCreate,
    MemberList,
    MemberView,
    QuotaBody,
    TenantCreate,
    TenantList,
    TenantView,
)

_PATH = "/v1/tenants"
_MEMBERS = "/v1/members"
Views = list[TenantView]  # inside the class `list` is its own method
MemberViews = list[MemberView]


class AsyncTenants:
    """Who shares a server. Making and changing tenants is for its operator: an admin of the tenant `default`.

    Example:
        await AsyncTenants.create("research", quota=QuotaBody(sandboxes=10))
        made = await AsyncKeys.create("first", scopes=["admin"], tenant="research")
    """

    @classmethod
    async def create(
        cls, name: str, *, quota: QuotaBody | None = None, url: str | None = None, api_key: str | None = None
    ) -> TenantView:
        """Make a tenant.

        Example:
            await AsyncTenants.create("research")
        """
        body = TenantCreate(name=name, quota=quota or QuotaBody())
        return await ask("POST", _PATH, TenantView, body, url=url, api_key=api_key)

    @classmethod
    async def list(cls, *, url: str | None = None, api_key: str | None = None) -> Views:
        """All tenants.

        Example:
            print([tenant.name for tenant in await AsyncTenants.list()])
        """
        return (await ask("GET", _PATH, TenantList, url=url, api_key=api_key)).items

    @classmethod
    async def info(cls, name: str, *, url: str | None = None, api_key: str | None = None) -> TenantView:
        """A tenant, its quota, and what it has now; one's own, or any to the operator.

        Example:
            print((await AsyncTenants.info("research")).holding)
        """
        return await ask("GET", f"{_PATH}/{exchange.segment(name)}", TenantView, url=url, api_key=api_key)

    @classmethod
    async def set_quota(
        cls, name: str, quota: QuotaBody, *, url: str | None = None, api_key: str | None = None
    ) -> TenantView:
        """Say what a tenant may have; what the quota leaves out has no limit.

        Example:
            await AsyncTenants.set_quota("research", QuotaBody(sandboxes=20, cpu=8))
        """
        path = f"{_PATH}/{exchange.segment(name)}/quota"
        return await ask("PUT", path, TenantView, quota, url=url, api_key=api_key)

    @classmethod
    async def remove(cls, name: str, *, url: str | None = None, api_key: str | None = None) -> None:
        """Remove a tenant: its keys open nothing any more, and its sandboxes are ended.

        Example:
            await AsyncTenants.remove("research")
        """
        await tell("DELETE", f"{_PATH}/{exchange.segment(name)}", url=url, api_key=api_key)

    @classmethod
    async def add_member(
        cls,
        name: str,
        *,
        scopes: Sequence[str] = ("read", "write"),
        tenant: str | None = None,
        url: str | None = None,
        api_key: str | None = None,
    ) -> MemberView:
        """Add a member, whose keys can do no more than its scopes say.

        Example:
            await AsyncTenants.add_member("ann", scopes=["admin"])
        """
        body = MemberCreate(name=name, scopes=list(scopes))
        path = _MEMBERS + exchange.query(tenant=tenant)
        return await ask("POST", path, MemberView, body, url=url, api_key=api_key)

    @classmethod
    async def members(
        cls, *, tenant: str | None = None, url: str | None = None, api_key: str | None = None
    ) -> MemberViews:
        """The members of a tenant.

        Example:
            print([member.name for member in await AsyncTenants.members()])
        """
        path = _MEMBERS + exchange.query(tenant=tenant)
        return (await ask("GET", path, MemberList, url=url, api_key=api_key)).items

    @classmethod
    async def remove_member(
        cls, member: str, *, tenant: str | None = None, url: str | None = None, api_key: str | None = None
    ) -> MemberView:
        """Remove a member, by id or name, and revoke its keys.

        Example:
            await AsyncTenants.remove_member("ann")
        """
        path = f"{_MEMBERS}/{exchange.segment(member)}{exchange.query(tenant=tenant)}"
        return await ask("DELETE", path, MemberView, url=url, api_key=api_key)
