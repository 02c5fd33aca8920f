"""Usage and budgets: counted across restarts, never twice, and ended when spent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest

from atoll.control.snapshots import SnapshotSpec
from atoll.control.usage import UsageFilter
from atoll.model import limits
from atoll.model.errors import Conflict, InvalidArgument, LimitExceeded, NotFound, OutOfSpace
from atoll.model.lifecycle import EndReason, SleepReason, State
from atoll.model.quota import Quota
from atoll.model.sandbox import Budget, DeadlineAction, SandboxSpec
from atoll.model.usage import Prices, Sample
from atoll.testing.clock import VirtualClock
from atoll.testing.nodes import FakeNode

pytestmark = pytest.mark.anyio

LONG = 10**6


async def used(world: Any, **filters: Any) -> Any:
    found = await world.control.accounts.usage.query(UsageFilter("default", **filters))
    return found[0].sum.usage if found else None


async def ended(world: Any, sandbox_id: str) -> Any:
    with anyio.fail_after(5):
        while (sandbox := await world.control.sandbox_get(world.me, sandbox_id)).ended_at is None:
            await anyio.sleep(0.005)
    return sandbox


async def test_a_sandbox_is_counted_from_its_start_to_its_end(world: Any) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=LONG))
    await world.clock.advance(100)
    world.node.samples[sandbox.id] = Sample(cpu_s=7, memory_bytes=limits.GIB)
    assert (await used(world)).wall_s == 100
    await world.clock.advance(20)
    world.node.samples[sandbox.id] = Sample(cpu_s=9, memory_bytes=limits.GIB)
    await world.control.sandbox_kill(world.me, sandbox.id)
    await world.clock.advance(1000)
    total = await used(world)
    assert (total.wall_s, total.cpu_s) == (120, 9)


async def test_who_came_while_others_were_counted_is_not_taken_for_counted(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    metering = world.control.accounts.usage
    await first_round(world)
    early, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=LONG))
    sample = world.node.sample

    async def sample_slowly(sandbox_ids: Any) -> Any:
        """Who is counted is known by now; meanwhile another comes, and time passes."""
        monkeypatch.undo()
        sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=LONG))
        world.node.samples[sandbox.id] = Sample(cpu_s=7)
        await world.clock.advance(30)
        assert list(sandbox_ids) == [early.id]
        return await sample(sandbox_ids)

    monkeypatch.setattr(world.node, "sample", sample_slowly)
    await metering.count()
    assert (await used(world)).wall_s == 60


async def first_round(world: Any) -> None:
    with anyio.fail_after(5):
        while world.control.accounts.usage._awaited is None:
            await anyio.sleep(0.005)


async def test_cpu_is_counted_once_though_an_older_sample_comes_last(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two count at once: a total that was read before another and written after it would look like a new counter."""
    metering, sample = world.control.accounts.usage, world.node.sample
    await first_round(world)
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=LONG))
    world.node.samples[sandbox.id] = Sample(cpu_s=10, egress_bytes=100)
    held = anyio.Event()

    async def sample_slowly(sandbox_ids: Any) -> Any:
        monkeypatch.undo()
        read = await sample(sandbox_ids)
        await held.wait()
        return read

    monkeypatch.setattr(world.node, "sample", sample_slowly)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(metering.count)
        await world.clock.advance(5)
        world.node.samples[sandbox.id] = Sample(cpu_s=11, egress_bytes=110)
        tasks.start_soon(metering.count)
        await world.clock.advance(5)
        held.set()
    await world.clock.advance(5)
    total = await used(world)
    assert (total.wall_s, total.cpu_s, total.egress_bytes) == (15, 11, 110)


async def test_a_pause_and_a_wake_up_during_a_count_count_nothing_twice(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    metering, sample = world.control.accounts.usage, world.node.sample
    await first_round(world)
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=LONG))
    await world.clock.advance(5)
    world.node.samples[sandbox.id] = Sample(cpu_s=10)

    async def sample_slowly(sandbox_ids: Any) -> Any:
        monkeypatch.undo()
        read = await sample(sandbox_ids)
        await world.control.states.pause(world.me, sandbox.id)
        await world.clock.advance(5)
        world.node.samples[sandbox.id] = Sample()
        await world.control.states.resume(world.me, sandbox.id)
        await world.clock.advance(5)
        return read

    monkeypatch.setattr(world.node, "sample", sample_slowly)
    await metering.count()
    world.node.samples[sandbox.id] = Sample(cpu_s=1)
    await world.clock.advance(5)
    total = await used(world)
    assert (total.wall_s, total.cpu_s) == (15, 11)


async def test_a_pause_that_fails_counts_nothing_twice(world: Any) -> None:
    """It runs on in the same box, whose counters go on."""
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=LONG))
    await world.clock.advance(5)
    world.node.samples[sandbox.id] = Sample(cpu_s=10)
    world.node.pause_errors = [OutOfSpace("full")]
    with pytest.raises(OutOfSpace):
        await world.control.states.pause(world.me, sandbox.id)
    world.node.samples[sandbox.id] = Sample(cpu_s=12)  # before the clock moves: it is counted at once when it may run
    await world.clock.advance(5)
    total = await used(world)
    assert (total.wall_s, total.cpu_s) == (10, 12)


@pytest.mark.parametrize("fails", [False, True])
async def test_what_was_used_before_a_rollback_counts(world: Any, fails: bool) -> None:
    """After it another box counts from zero; one that fails leaves the box that there was."""
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=LONG))
    snapshot = await world.control.snapshots.take(world.me, sandbox.id, SnapshotSpec())
    world.node.samples[sandbox.id] = Sample(cpu_s=1, egress_bytes=10)
    await used(world)
    await world.clock.advance(5)
    world.node.samples[sandbox.id] = Sample(cpu_s=10, egress_bytes=100)
    if fails:
        world.node.images.clear()
        with pytest.raises(NotFound):
            await world.control.states.rollback(world.me, sandbox.id, snapshot)
    else:
        await world.control.states.rollback(world.me, sandbox.id, snapshot)
    await world.clock.advance(5)
    world.node.samples[sandbox.id] = Sample(cpu_s=15, egress_bytes=101)
    total = await used(world)
    assert (total.wall_s, total.cpu_s, total.egress_bytes) == (10, 15 if fails else 25, 101)


async def test_what_was_read_before_the_end_counts_though_the_end_is_tried_again(world: Any) -> None:
    """The node has forgotten it by then, so nobody could tell a second time."""
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=LONG))
    await world.clock.advance(30)
    world.node.samples[sandbox.id] = Sample(cpu_s=7)
    world.node.destroy_errors = [RuntimeError("not yet")]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.control.sandbox_kill, world.me, sandbox.id)
        while world.node.destroy_errors:
            await anyio.sleep(0.005)
        world.node.samples[sandbox.id] = Sample()
    total = await used(world)
    assert (total.wall_s, total.cpu_s) == (30, 7)


async def test_a_server_that_was_away_counts_what_it_missed(open_world: Any) -> None:
    node, clock = FakeNode(), VirtualClock()
    async with open_world(node, clock) as world:
        sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=LONG))
        await clock.advance(90)
    await clock.advance(500)
    node.samples[sandbox.id] = Sample(cpu_s=5)
    async with open_world(node, clock) as world:
        total = await used(world)
        assert (total.wall_s, total.cpu_s) == (590, 5)
        assert await used(world) == total


async def test_a_sandbox_that_did_not_survive_is_not_charged_for_its_death(open_world: Any) -> None:
    """Nobody knows when it died; what was counted before stays, and nothing is added."""
    node, clock = FakeNode(), VirtualClock()
    async with open_world(node, clock) as world:
        await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=LONG))
        await clock.advance(90)
        before = await used(world)
    node.guests.clear()
    await clock.advance(5000)
    async with open_world(node, clock) as world:
        assert await used(world) == before


async def test_a_node_that_cannot_be_sampled_stops_nothing(world: Any) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=LONG))
    await world.clock.advance(10)
    world.node.sample_errors = [RuntimeError("no")]
    assert (await world.control.sandbox_kill(world.me, sandbox.id)).state is State.KILLED
    assert (await used(world)).wall_s == 10


def missed(world: Any) -> Any:
    return world.metrics.registry.get_sample_value("atoll_usage_samples_missed_total")


async def test_a_sandbox_that_cannot_be_sampled_spends_its_budget_of_time(world: Any) -> None:
    """Its time is known anyway; what else it has used is counted as soon as it can be read again."""
    await first_round(world)
    spec = SandboxSpec(timeout_s=LONG, budget=Budget(seconds=25))
    sandbox, _ = await world.control.sandbox_create(world.me, spec)
    world.node.samples[sandbox.id] = Sample(cpu_s=3)
    world.node.unreadable.add(sandbox.id)
    await world.clock.advance(10)
    assert ((await used(world)).wall_s, (await used(world)).cpu_s, missed(world)) == (10, 0, 1)
    world.node.unreadable.clear()
    await world.clock.advance(10)
    assert ((await used(world)).wall_s, (await used(world)).cpu_s) == (20, 3)
    world.node.unreadable.add(sandbox.id)
    await world.clock.advance(5)
    assert (await ended(world, sandbox.id)).end_reason is EndReason.BUDGET_SPENT


@pytest.mark.parametrize("fails", [False, True])
async def test_a_node_that_says_nothing_keeps_no_budget_from_its_end(
    world: Any, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    await first_round(world)
    monkeypatch.setattr(limits, "SAMPLE_S_MAX", 0.01)
    monkeypatch.setattr(limits, "SAMPLE_LAST_S_MAX", 0.01)

    async def sample(_sandbox_ids: Any) -> Any:
        if fails:
            raise RuntimeError("no")
        await anyio.sleep_forever()

    monkeypatch.setattr(world.node, "sample", sample)
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=LONG, budget=Budget(seconds=25)))
    await world.clock.advance(25)
    assert (await ended(world, sandbox.id)).end_reason is EndReason.BUDGET_SPENT
    assert missed(world) >= 2, "of the round, and of the end"


async def test_a_sandbox_that_is_gone_is_counted_no_further_without_a_sample(world: Any) -> None:
    """It died, and nobody knows when: the node has it no more, and its burial is under way."""
    await first_round(world)
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=LONG))
    world.node.guests.pop(sandbox.id).end()
    await world.clock.advance(10)
    assert await used(world) is None
    assert missed(world) == 0


async def test_a_sandbox_that_has_run_for_its_budget_is_ended_to_the_second(world: Any) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=LONG, budget=Budget(seconds=25)))
    await world.clock.advance(24)
    await anyio.sleep(0.05)
    assert (await world.control.sandbox_get(world.me, sandbox.id)).state is State.RUNNING
    await world.clock.advance(1)
    assert (await ended(world, sandbox.id)).end_reason is EndReason.BUDGET_SPENT


async def test_a_sandbox_that_costs_more_than_its_budget_is_ended(world: Any) -> None:
    world.control.accounts.usage.prices = Prices(cpu_s=0.5)
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=LONG, budget=Budget(money=10)))
    world.node.samples[sandbox.id] = Sample(cpu_s=19)
    await world.clock.advance(61)
    await anyio.sleep(0.05)
    assert (await world.control.sandbox_get(world.me, sandbox.id)).state is State.RUNNING
    world.node.samples[sandbox.id] = Sample(cpu_s=20)
    await world.clock.advance(61)
    assert (await ended(world, sandbox.id)).end_reason is EndReason.BUDGET_SPENT


async def test_a_tenant_that_has_spent_its_month_starts_nothing_more_until_the_next(world: Any) -> None:
    await world.control.accounts.tenants.set_quota(world.me, "default", Quota(budget_s=100))
    me = replace(world.me, tenant_quota=Quota(budget_s=100))
    first, _ = await world.control.sandbox_create(me, SandboxSpec(timeout_s=LONG))
    second, _ = await world.control.sandbox_create(me, SandboxSpec(timeout_s=LONG))
    await world.clock.advance(50)
    for sandbox in (first, second):
        assert (await ended(world, sandbox.id)).end_reason is EndReason.BUDGET_SPENT
    with pytest.raises(LimitExceeded) as caught:
        await world.control.sandbox_create(me, SandboxSpec())
    assert caught.value.code == "budget_spent"
    await world.clock.advance(31 * 24 * 3600)
    await world.control.sandbox_create(me, SandboxSpec())


async def test_a_tenants_seconds_are_over_on_time_however_many_use_them(world: Any) -> None:
    """Nobody counts in between: what a create changes about a budget is known at once."""
    await world.control.accounts.tenants.set_quota(world.me, "default", Quota(budget_s=20))
    me = replace(world.me, tenant_quota=Quota(budget_s=20))
    await world.clock.advance(7)
    first, _ = await world.control.sandbox_create(me, SandboxSpec(timeout_s=LONG))
    await world.clock.advance(4)
    second, _ = await world.control.sandbox_create(me, SandboxSpec(timeout_s=LONG))
    await world.clock.advance(7.9)
    await anyio.sleep(0.05)
    assert (await world.control.sandbox_get(me, first.id)).state is State.RUNNING
    await world.clock.advance(0.1)
    for sandbox in (first, second):
        assert (await ended(world, sandbox.id)).end_reason is EndReason.BUDGET_SPENT
    with pytest.raises(LimitExceeded):
        await world.control.sandbox_create(me, SandboxSpec())


async def test_a_budget_that_is_made_smaller_or_slept_through_holds_at_once(world: Any) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=LONG))
    await world.clock.advance(5)
    await world.control.states.pause(world.me, sandbox.id)
    await world.control.accounts.tenants.set_quota(world.me, "default", Quota(budget_s=8))
    await world.clock.advance(100)
    await world.control.states.resume(world.me, sandbox.id)
    await world.clock.advance(2)
    await anyio.sleep(0.05)
    assert (await world.control.sandbox_get(world.me, sandbox.id)).state is State.RUNNING
    await world.clock.advance(1)
    assert (await ended(world, sandbox.id)).end_reason is EndReason.BUDGET_SPENT
    another, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=LONG))
    await world.control.accounts.tenants.set_quota(world.me, "default", Quota(budget_s=7))
    assert (await ended(world, another.id)).end_reason is EndReason.BUDGET_SPENT


@pytest.mark.parametrize("whose", ["sandbox", "tenant"])
async def test_money_is_spent_to_the_second_where_time_is_what_costs(world: Any, whose: str) -> None:
    world.control.accounts.usage.prices = Prices(wall_s=0.1)
    quota = Quota(budget_money=0.5) if whose == "tenant" else Quota()
    await world.control.accounts.tenants.set_quota(world.me, "default", quota)
    budget = Budget(money=0.5) if whose == "sandbox" else Budget()
    me = replace(world.me, tenant_quota=quota)
    sandbox, _ = await world.control.sandbox_create(me, SandboxSpec(timeout_s=LONG, budget=budget))
    await world.clock.advance(4.9)
    await anyio.sleep(0.05)
    assert (await world.control.sandbox_get(me, sandbox.id)).state is State.RUNNING
    await world.clock.advance(0.2)
    assert (await ended(world, sandbox.id)).end_reason is EndReason.BUDGET_SPENT


async def test_a_burst_of_cpu_cannot_overdraw_by_more_than_a_look(world: Any) -> None:
    """Both cores at work: ten seconds at the most, however long the pause between two counts of everything is."""
    world.control.accounts.usage.prices = Prices(cpu_s=0.5)
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=LONG, budget=Budget(money=10)))
    for second in range(1, 11):
        world.node.samples[sandbox.id] = Sample(cpu_s=2.0 * second)
        await world.clock.advance(1)
    assert (await ended(world, sandbox.id)).end_reason is EndReason.BUDGET_SPENT


async def test_creates_without_a_budget_do_not_wake_who_counts(world: Any) -> None:
    await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=LONG))
    await anyio.sleep(0.05)
    world.control.accounts.usage._awaited = None  # it is at work
    await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=LONG))
    assert not world.control.accounts.usage._changed.is_set()


async def test_creates_of_a_tenant_with_a_budget_do_not_count_everything_each_time(world: Any) -> None:
    me = replace(world.me, tenant_quota=Quota(budget_s=1e6))
    await world.control.accounts.tenants.set_quota(world.me, "default", me.tenant_quota)
    await world.control.sandbox_create(me, SandboxSpec(timeout_s=LONG))
    await anyio.sleep(0.05)
    seen = world.node.sampled
    for _ in range(5):
        await world.control.sandbox_create(me, SandboxSpec(timeout_s=LONG))
        await anyio.sleep(0.01)
    assert world.node.sampled == seen


async def asleep(world: Any, sandbox_id: str, state: State) -> Any:
    with anyio.fail_after(5):
        while (sandbox := await world.control.sandbox_get(world.me, sandbox_id)).state is not state:
            await anyio.sleep(0.005)
    return sandbox


@pytest.mark.parametrize(
    ("action", "state"), [(DeadlineAction.PAUSE, State.PAUSED), (DeadlineAction.STANDBY, State.STANDBY)]
)
async def test_a_spent_budget_stops_in_the_way_that_the_owner_chose(
    world: Any, action: DeadlineAction, state: State
) -> None:
    spec = SandboxSpec(timeout_s=LONG, budget=Budget(seconds=25), on_budget=action, auto_resume=True)
    sandbox, _ = await world.control.sandbox_create(world.me, spec)
    await world.clock.advance(25)
    stopped = await asleep(world, sandbox.id, state)
    assert (stopped.sleep_reason, stopped.end_reason) == (SleepReason.BUDGET_SPENT, None)
    for wake in (world.control.states.resume, world.control.guest):
        with pytest.raises(LimitExceeded) as caught:
            await wake(world.me, sandbox.id)
        assert caught.value.code == "budget_spent"
    await world.control.sandbox_set_budget(world.me, sandbox.id, Budget(seconds=60), None)
    awake = await world.control.states.resume(world.me, sandbox.id)
    assert (awake.state, awake.sleep_reason, awake.on_budget) == (State.RUNNING, None, action)
    await world.clock.advance(34)
    await anyio.sleep(0.05)
    assert (await world.control.sandbox_get(world.me, sandbox.id)).state is State.RUNNING
    await world.clock.advance(1)
    assert (await asleep(world, sandbox.id, state)).sleep_reason is SleepReason.BUDGET_SPENT


async def test_a_sleep_for_a_budget_that_fails_is_tried_again(world: Any) -> None:
    world.node.pause_errors = [OutOfSpace("full")]
    spec = SandboxSpec(timeout_s=LONG, budget=Budget(seconds=25), on_budget=DeadlineAction.PAUSE)
    sandbox, _ = await world.control.sandbox_create(world.me, spec)
    await world.clock.advance(25)
    with anyio.fail_after(5):
        while world.node.pause_errors:
            await anyio.sleep(0.005)
    await asleep(world, sandbox.id, State.RUNNING)
    await world.clock.advance(61)
    await asleep(world, sandbox.id, State.PAUSED)


async def test_a_tenants_spent_budget_stops_each_in_its_own_way(world: Any) -> None:
    await world.control.accounts.tenants.set_quota(world.me, "default", Quota(budget_s=100))
    killed, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=LONG))
    spec = SandboxSpec(timeout_s=LONG, on_budget=DeadlineAction.PAUSE)
    paused, _ = await world.control.sandbox_create(replace(world.me, tenant_quota=Quota(budget_s=100)), spec)
    await world.clock.advance(50)
    assert (await ended(world, killed.id)).end_reason is EndReason.BUDGET_SPENT
    assert (await asleep(world, paused.id, State.PAUSED)).sleep_reason is SleepReason.BUDGET_SPENT
    with pytest.raises(LimitExceeded):
        await world.control.states.resume(world.me, paused.id)
    await world.control.accounts.tenants.set_quota(world.me, "default", Quota())
    assert (await world.control.states.resume(world.me, paused.id)).state is State.RUNNING


async def test_another_budget_is_checked_and_needs_a_live_sandbox(world: Any) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=LONG))
    with pytest.raises(InvalidArgument):
        await world.control.sandbox_set_budget(world.me, sandbox.id, Budget(seconds=0), None)
    with pytest.raises(NotFound):
        await world.control.sandbox_set_budget(world.other, sandbox.id, Budget(seconds=5), None)
    await world.control.sandbox_set_budget(world.me, sandbox.id, Budget(seconds=5), None)
    await world.clock.advance(5)
    await ended(world, sandbox.id)
    with pytest.raises(Conflict) as caught:
        await world.control.sandbox_set_budget(world.me, sandbox.id, Budget(seconds=50), None)
    assert caught.value.code == "not_running"


@pytest.mark.parametrize("by", ["hour", "label:", "owner; drop table", ""])
async def test_a_group_that_is_none_is_refused(world: Any, by: str) -> None:
    with pytest.raises(InvalidArgument):
        await world.control.accounts.usage.query(UsageFilter("default", by=by))


@pytest.mark.parametrize("budget", [Budget(seconds=0), Budget(money=-1), Budget(seconds=float("nan"))])
async def test_a_budget_that_is_none_is_refused(world: Any, budget: Budget) -> None:
    with pytest.raises(InvalidArgument):
        await world.control.sandbox_create(world.me, SandboxSpec(budget=budget))


async def test_usage_of_another_tenant_is_not_shown(world: Any) -> None:
    await world.control.sandbox_create(world.other, SandboxSpec(timeout_s=LONG))
    await world.clock.advance(10)
    assert await used(world) is None
