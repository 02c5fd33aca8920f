"""Tenants: kept apart, bounded, removed with all that they have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest

from atoll.control.authz import ALL_SCOPES, Principal
from atoll.control.events import EventFilter
from atoll.control.ingress import Knock
from atoll.control.keys import KeySpec
from atoll.control.snapshots import SnapshotSpec
from atoll.model import limits
from atoll.model.errors import Conflict, Forbidden, InvalidArgument, LimitExceeded, NotFound, Unauthenticated
from atoll.model.lifecycle import EndReason
from atoll.model.quota import Quota
from atoll.model.sandbox import SandboxSpec
from atoll.model.secret import Secret
from atoll.model.volume import VolumeMount
from atoll.testing.clock import VirtualClock
from atoll.testing.nodes import FakeNode

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


async def test_what_a_removed_tenant_kept_goes_too_also_after_a_kill(open_world: Any) -> None:
    """Its volumes wait for the sandboxes that have them; a server that starts later clears up what was left."""
    node, clock = FakeNode(), VirtualClock()
    async with open_world(node, clock) as world:
        control = world.control
        await control.accounts.tenants.create(world.me, "team", Quota())
        team = Principal("team", "ak3", ALL_SCOPES)
        volume = await control.volumes.create(team, "data", limits.GIB)
        await control.volumes.snapshots.create(team, volume, None)
        mounts = (VolumeMount(volume.id, "/data"),)
        sandbox, _ = await control.sandbox_create(team, SandboxSpec(volumes=mounts))
        await control.snapshots.take(team, sandbox.id, SnapshotSpec())
        await control.secrets.put(team, Secret("T", hosts=("a.example",)), "value")
        mine = await control.volumes.create(world.me, "mine", limits.GIB)
        await control.accounts.tenants.remove(world.me, "team", _nothing)  # and here it is killed
    async with open_world(node, clock) as world:
        with anyio.fail_after(5):
            while node.volume_ids() != {mine.id} or node.image_ids() or node.guests:
                await clock.advance(1)
                await anyio.sleep(0.01)
            while await world.control.secrets.list(team):
                await anyio.sleep(0.01)
        assert (await world.control.sandbox_get(team, sandbox.id)).end_reason is EndReason.TENANT_REMOVED


async def _nothing(_owner: str) -> None:
    pass


async def test_disk_is_that_of_sandboxes_volumes_and_snapshots_together(world: Any) -> None:
    quota = Quota(disk_bytes=30 * limits.GIB)
    control = world.control
    await control.accounts.tenants.set_quota(world.me, "default", quota)
    me = replace(world.me, tenant_quota=quota)
    sandbox, _ = await control.sandbox_create(me, SandboxSpec())
    volume = await control.volumes.create(me, "data", 15 * limits.GIB)
    for refused in (control.volumes.create(me, "more", 6 * limits.GIB), control.sandbox_create(me, SandboxSpec())):
        with pytest.raises(LimitExceeded) as caught:
            await refused
        assert caught.value.code == "quota_exceeded"
    assert world.node.volume_ids() == {volume.id}
    world.node.image_bytes = 4 * limits.GIB
    kept = await control.snapshots.take(me, sandbox.id, SnapshotSpec())
    with pytest.raises(LimitExceeded):
        await control.snapshots.take(me, sandbox.id, SnapshotSpec())
    assert world.node.image_ids() == {kept.id}
    assert (await control.accounts.tenants.show("default")).holding.disk_bytes == 29 * limits.GIB + 1000
    await control.snapshots.delete(me, kept.id)
    await control.volumes.create(me, "more", 5 * limits.GIB)
    fork = (await control.snapshots.fork(me, sandbox.id, 1, None))[0]
    assert fork.error is not None
    assert fork.error.code == "quota_exceeded"


async def test_creates_before_a_clock_was_set_back_do_not_hold_up_those_after_it(world: Any) -> None:
    """They lie in the future then, and nobody waits until it has come."""
    me = replace(world.me, tenant_quota=Quota(creates_per_minute=2))
    for _ in range(2):
        await world.control.sandbox_create(me, SandboxSpec())
    with pytest.raises(LimitExceeded) as caught:
        await world.control.sandbox_create(me, SandboxSpec())
    assert caught.value.retry_after_s == 60
    await world.clock.jump(-3600.0)
    for _ in range(2):
        await world.control.sandbox_create(me, SandboxSpec())
    with pytest.raises(LimitExceeded) as caught:
        await world.control.sandbox_create(me, SandboxSpec())
    assert caught.value.retry_after_s == 60


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


@pytest.mark.parametrize("whole", [False, True])
async def test_what_a_removed_member_or_tenant_has_open_ends(world: Any, whole: bool) -> None:
    control = world.control
    await control.accounts.tenants.create(world.me, "team", Quota())
    await control.accounts.tenants.member_add(world.me, "team", "ann", frozenset({"write"}))
    _, key = await control.accounts.keys.create(None, "team", KeySpec("of ann", member="ann"))
    sandbox, _ = await control.sandbox_create(await control.authenticate(key), SandboxSpec())
    admission = await control.ingress.admit(Knock(sandbox.id, 8000, key))
    ticket, _ = control.tickets.issue(await control.authenticate(key), "/terminals/1")
    cut = anyio.Event()

    async def visit() -> None:
        with pytest.raises(Forbidden), control.ingress.visit(admission):
            await anyio.sleep_forever()
        cut.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(visit)
        await anyio.wait_all_tasks_blocked()
        if whole:
            await control.accounts.tenants.remove(world.me, "team", _nothing)
        else:
            await control.accounts.tenants.member_remove(world.me, "team", "ann")
        with anyio.fail_after(5):
            await cut.wait()
    with pytest.raises(Unauthenticated):
        control.tickets.redeem(ticket, "/terminals/1")


async def test_a_create_that_was_let_in_before_its_tenant_was_removed_makes_nothing(world: Any) -> None:
    await world.control.accounts.tenants.create(world.me, "team", Quota())
    _, key = await world.control.accounts.keys.create(None, "team", KeySpec("first"))
    member = await world.control.authenticate(key)
    await world.control.tenant_remove(world.me, "team")
    with pytest.raises(Unauthenticated) as caught:
        await world.control.sandbox_create(member, SandboxSpec())
    assert caught.value.code == "key_revoked"
    assert world.node.orders == []


@pytest.mark.parametrize("name", ["", "A", "a b", "x" * 64, "é"])
async def test_a_name_that_is_none_is_refused(world: Any, name: str) -> None:
    with pytest.raises(InvalidArgument):
        await world.control.accounts.tenants.create(world.me, name, Quota())


async def test_a_tenant_that_is_removed_meanwhile_gets_no_quota_and_no_entry_in_the_log(world: Any) -> None:
    tenants = world.control.accounts.tenants
    await tenants.create(world.me, "team", Quota())
    await world.control.tenant_remove(world.me, "team")

    async def find(_tenant_id: str) -> None:
        """It was there a moment ago."""

    tenants._find = find
    with pytest.raises(NotFound) as caught:
        await tenants.set_quota(world.me, "team", Quota(sandboxes=1))
    assert caught.value.code == "tenant_not_found"
    found = await world.control.accounts.events.page(EventFilter("default", actions=("tenant.quota",)), 0, 10)
    assert found.items == []


async def test_tenants_that_were_removed_leave_room_for_others(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TENANTS_MAX", 2)  # the operator's own is one
    tenants = world.control.accounts.tenants
    await tenants.create(world.me, "one", Quota())
    with pytest.raises(LimitExceeded) as caught:
        await tenants.create(world.me, "two", Quota())
    assert caught.value.code == "too_many_tenants"
    await world.control.tenant_remove(world.me, "one")
    await tenants.create(world.me, "two", Quota())
