"""Tenants: kept apart, bounded, removed with all that they have."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from atoll.control.keys import KeySpec
from atoll.model.errors import Conflict, InvalidArgument, NotFound, Unauthenticated
from atoll.model.lifecycle import EndReason
from atoll.model.quota import Quota
from atoll.model.sandbox import SandboxSpec

pytestmark = pytest.mark.anyio


async def test_a_tenant_is_made_shown_and_changed(world: Any) -> None:
    tenants = world.control.accounts.tenants
    await tenants.create(world.me, "team", Quota(sandboxes=1))
    with pytest.raises(Conflict):
        await tenants.create(world.me, "team", Quota())
    _, key = await world.control.accounts.keys.create(None, "team", KeySpec("first"))
    member = await world.control.authenticate(key)
    assert member.tenant_quota == Quota(sandboxes=1)
    await world.control.sandbox_create(member, SandboxSpec())
    state = await tenants.set_quota(world.me, "team", Quota(sandboxes=5, cpu=2))
    assert (state.tenant.quota, state.holding.sandboxes) == (Quota(sandboxes=5, cpu=2), 1)
    assert (await world.control.authenticate(key)).tenant_quota == Quota(sandboxes=5, cpu=2)
    assert [tenant.id for tenant in await tenants.every()] == ["default", "team"]


async def test_a_removed_tenant_has_nothing_left(world: Any) -> None:
    tenants = world.control.accounts.tenants
    await tenants.create(world.me, "team", Quota())
    _, key = await world.control.accounts.keys.create(None, "team", KeySpec("first"))
    member = await world.control.authenticate(key)
    sandbox, _ = await world.control.sandbox_create(member, SandboxSpec())
    mine, _ = await world.control.sandbox_create(world.me, SandboxSpec())
    await world.control.tenant_remove(world.me, "team")
    with pytest.raises(Unauthenticated):
        await world.control.authenticate(key)
    with anyio.fail_after(5):
        while sandbox.id in world.node.guests:
            await anyio.sleep(0.005)
        while (ended := await world.control.sandbox_get(member, sandbox.id)).ended_at is None:
            await anyio.sleep(0.005)
    assert ended.end_reason is EndReason.TENANT_REMOVED
    assert mine.id in world.node.guests
    for act in (tenants.show("team"), tenants.set_quota(world.me, "team", Quota())):
        with pytest.raises(NotFound):
            await act
    with pytest.raises(Conflict):
        await world.control.tenant_remove(world.me, "default")


async def test_a_member_that_is_removed_takes_its_keys_along(world: Any) -> None:
    tenants = world.control.accounts.tenants
    ann = await tenants.member_add(world.me, "default", "ann", frozenset({"write"}))
    with pytest.raises(Conflict):
        await tenants.member_add(world.me, "default", "ann", frozenset({"read"}))
    _, key = await world.control.accounts.keys.create(world.me, "default", KeySpec("of ann", member="ann"))
    await world.control.authenticate(key)
    with pytest.raises(NotFound):
        await tenants.member_remove(world.other, "other", "ann")
    assert (await tenants.member_remove(world.me, "default", "ann")).id == ann.id
    with pytest.raises(Unauthenticated):
        await world.control.authenticate(key)
    assert await tenants.members("default") == []
    await tenants.member_add(world.me, "default", "ann", frozenset({"read"}))


@pytest.mark.parametrize("name", ["", "A", "a b", "x" * 64, "é"])
async def test_a_name_that_is_none_is_refused(world: Any, name: str) -> None:
    with pytest.raises(InvalidArgument):
        await world.control.accounts.tenants.create(world.me, name, Quota())
