"""Create, find, list, deadline and kill, with the node failing wherever it can."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import anyio
import pytest

from atoll.control.events import EventFilter
from atoll.control.sandboxes import Query, cursor_decode
from atoll.model import limits
from atoll.model.errors import AtollError, Conflict, InvalidArgument, LimitExceeded, NotFound, Unavailable
from atoll.model.lifecycle import EndReason, State
from atoll.model.quota import Quota
from atoll.model.resources import Resources
from atoll.model.sandbox import SandboxSpec

pytestmark = pytest.mark.anyio


async def settle(world: Any, sandbox_id: str, state: State) -> Any:
    with anyio.fail_after(5):
        while (sandbox := await world.control.sandbox_get(world.me, sandbox_id)).state is not state:
            await anyio.sleep(0.005)
    return sandbox


async def test_a_created_sandbox_runs_and_is_found_by_id_and_name(world: Any) -> None:
    spec = SandboxSpec(name="mine", metadata={"run": "7"}, env={"A": "1"}, timeout_s=60)
    sandbox, started = await world.control.sandbox_create(world.me, spec)
    assert sandbox.state is State.RUNNING
    assert sandbox.deadline_at == world.clock.now() + timedelta(seconds=60)
    assert started.sandbox_id == sandbox.id
    assert world.node.orders[0].env == {"A": "1"}
    assert await world.control.sandbox_get(world.me, "mine") == sandbox
    assert await world.control.sandbox_get(world.me, sandbox.id) == sandbox


async def test_what_is_anothers_does_not_exist(world: Any) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(name="mine"))
    for reference in (sandbox.id, "mine"):
        with pytest.raises(NotFound, match="there is no sandbox"):
            await world.control.sandbox_get(world.other, reference)
        with pytest.raises(NotFound):
            await world.control.sandbox_kill(world.other, reference)
        with pytest.raises(NotFound):
            await world.control.guest(world.other, reference)
    assert (await world.control.sandbox_list(world.other, Query(), None, 10)).items == []


async def test_a_name_is_taken_only_by_a_live_sandbox_of_the_same_owner(world: Any) -> None:
    first, _ = await world.control.sandbox_create(world.me, SandboxSpec(name="mine"))
    with pytest.raises(Conflict) as caught:
        await world.control.sandbox_create(world.me, SandboxSpec(name="mine"))
    assert caught.value.code == "name_taken"
    await world.control.sandbox_create(world.other, SandboxSpec(name="mine"))
    await world.control.sandbox_kill(world.me, first.id)
    await world.control.sandbox_create(world.me, SandboxSpec(name="mine"))
    assert len(world.node.guests) == 2


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (SandboxSpec(timeout_s=-1), "invalid_timeout"),
        (SandboxSpec(timeout_s=float("nan")), "invalid_timeout"),
        (SandboxSpec(name="No"), "invalid_name"),
        (SandboxSpec(resources=Resources(memory_bytes=-5)), "invalid_resources"),
        (SandboxSpec(resources=Resources(cpu=1e9)), "invalid_resources"),
        (SandboxSpec(env={"1": "x"}), "invalid_env"),
    ],
)
async def test_what_cannot_be_granted_changes_nothing(world: Any, spec: SandboxSpec, code: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await world.control.sandbox_create(world.me, spec)
    assert caught.value.code == code
    assert world.node.orders == []
    assert (await world.control.sandbox_list(world.me, Query(), None, 10)).items == []


async def test_an_unknown_template_is_refused_before_anything_is_on_record(world: Any) -> None:
    with pytest.raises(NotFound) as caught:
        await world.control.sandbox_create(world.me, SandboxSpec(template="nope"))
    assert caught.value.code == "template_not_found"
    assert "code" in caught.value.hint
    assert (await world.control.sandbox_list(world.me, Query(), None, 10)).items == []


async def test_a_start_that_fails_is_told_and_on_record(world: Any) -> None:
    world.node.create_errors = [Unavailable("no memory for another sandbox", code="no_capacity")]
    with pytest.raises(Unavailable) as caught:
        await world.control.sandbox_create(world.me, SandboxSpec(name="mine"))
    assert caught.value.code == "no_capacity"
    (failed,) = (await world.control.sandbox_list(world.me, Query(), None, 10)).items
    assert (failed.state, failed.end_reason) == (State.FAILED, EndReason.START_FAILED)
    assert failed.end_detail == "no memory for another sandbox"
    assert world.node.guests == {}


async def test_a_caller_who_leaves_while_it_starts_leaves_nothing(world: Any) -> None:
    world.node.create_s = 60
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.control.sandbox_create, world.me, SandboxSpec())
        while not world.node.creating:
            await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()
    (failed,) = (await world.control.sandbox_list(world.me, Query(), None, 10)).items
    assert (failed.state, failed.end_reason) == (State.FAILED, EndReason.START_FAILED)
    assert world.node.guests == {}


async def test_a_kill_while_it_starts_stops_the_start(world: Any) -> None:
    world.node.create_gate = anyio.Event()
    errors: list[AtollError] = []

    async def create() -> None:
        try:
            await world.control.sandbox_create(world.me, SandboxSpec(name="mine"))
        except AtollError as error:
            errors.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(create)
        while not world.node.creating:
            await anyio.sleep(0.001)
        killed = await world.control.sandbox_kill(world.me, "mine")
    assert (killed.state, killed.end_reason) == (State.KILLED, EndReason.KILLED_BY_USER)
    assert [error.code for error in errors] == ["killed"]
    assert world.node.guests == {}


async def test_a_kill_ends_it_and_again_shows_it(world: Any) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec())
    killed = await world.control.sandbox_kill(world.me, sandbox.id)
    assert (killed.state, killed.end_reason) == (State.KILLED, EndReason.KILLED_BY_USER)
    assert killed.ended_at is not None
    assert world.node.destroyed == [sandbox.id]
    assert await world.control.sandbox_kill(world.me, sandbox.id) == killed
    assert world.node.destroyed == [sandbox.id]


async def test_many_kills_at_once_are_one(world: Any) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec())
    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(world.control.sandbox_kill, world.me, sandbox.id)
    assert world.node.destroyed == [sandbox.id]


async def test_a_teardown_that_fails_is_tried_again(world: Any) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec())
    world.node.destroy_errors = [Unavailable("busy"), RuntimeError("worse")]
    killed = await world.control.sandbox_kill(world.me, sandbox.id)
    assert killed.state is State.KILLED
    assert world.node.guests == {}


async def test_the_deadline_ends_it_on_time(world: Any) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=60))
    await world.clock.advance(59.9)
    assert (await world.control.sandbox_get(world.me, sandbox.id)).state is State.RUNNING
    await world.clock.advance(0.2)
    ended = await settle(world, sandbox.id, State.KILLED)
    assert ended.end_reason is EndReason.DEADLINE
    assert world.node.guests == {}


async def test_a_deadline_that_may_only_move_away_stays_where_a_later_one_is(world: Any) -> None:
    """Decided where it is written, and not by what was read before."""
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=60))
    begun = world.clock.now()
    for asked_s, left_s in ((600, 600), (5, 600), (700, 700)):
        told = await world.control.sandbox_set_deadline(world.me, sandbox.id, asked_s, only_later=True)
        known = await world.control.sandbox_get(world.me, sandbox.id)
        assert told.deadline_at == known.deadline_at == begun + timedelta(seconds=left_s)
    found = await world.control.accounts.events.page(EventFilter(None, actions=("sandbox.deadline",)), None, 10)
    assert len(found.items) == 2
    await world.control.sandbox_kill(world.me, sandbox.id)
    with pytest.raises(Conflict):
        await world.control.sandbox_set_deadline(world.me, sandbox.id, 800, only_later=True)


async def test_a_deadline_can_be_moved_both_ways(world: Any) -> None:
    late, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=60))
    early, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=600))
    moved = await world.control.sandbox_set_deadline(world.me, late.id, 600)
    assert moved.deadline_at == world.clock.now() + timedelta(seconds=600)
    await world.control.sandbox_set_deadline(world.me, early.id, 5)
    await world.clock.advance(6)
    assert (await settle(world, early.id, State.KILLED)).end_reason is EndReason.DEADLINE
    await world.clock.advance(60)
    assert (await world.control.sandbox_get(world.me, late.id)).state is State.RUNNING
    with pytest.raises(InvalidArgument):
        await world.control.sandbox_set_deadline(world.me, late.id, 0)
    with pytest.raises(Conflict) as caught:
        await world.control.sandbox_set_deadline(world.me, early.id, 60)
    assert caught.value.code == "not_running"
    assert "deadline" in caught.value.message


async def test_a_death_is_on_record_with_its_reason(world: Any) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(name="mine"))
    world.node.die(sandbox.id, EndReason.OUT_OF_MEMORY, "it used 1.2 GiB of 1 GiB")
    failed = await settle(world, sandbox.id, State.FAILED)
    assert (failed.end_reason, failed.end_detail) == (EndReason.OUT_OF_MEMORY, "it used 1.2 GiB of 1 GiB")
    with pytest.raises(Conflict) as caught:
        await world.control.guest(world.me, sandbox.id)
    assert caught.value.code == "not_running"
    assert "out_of_memory" in caught.value.message


async def test_pages_are_stable_while_sandboxes_come_and_go(world: Any) -> None:
    made = [(await world.control.sandbox_create(world.me, SandboxSpec()))[0].id for _ in range(7)]
    first = await world.control.sandbox_list(world.me, Query(), None, 3)
    await world.clock.advance(1)
    await world.control.sandbox_create(world.me, SandboxSpec())
    await world.control.sandbox_kill(world.me, first.items[0].id)
    second = await world.control.sandbox_list(world.me, Query(), first.next, 3)
    third = await world.control.sandbox_list(world.me, Query(), second.next, 3)
    assert third.next is None
    seen = [item.id for page in (first, second, third) for item in page.items]
    assert len(seen) == len(set(seen)) == 7
    assert set(seen) == set(made)


async def test_filters_narrow_a_list(world: Any) -> None:
    one, _ = await world.control.sandbox_create(world.me, SandboxSpec(name="one", metadata={"run": '7"', "x": "y"}))
    two, _ = await world.control.sandbox_create(world.me, SandboxSpec(template="base", metadata={"run": "8"}))
    await world.control.sandbox_kill(world.me, two.id)

    async def ids(query: Query) -> list[str]:
        return [item.id for item in (await world.control.sandbox_list(world.me, query, None, 10)).items]

    assert await ids(Query(metadata={"run": '7"'})) == [one.id]
    assert await ids(Query(metadata={"run": '7"', "x": "z"})) == []
    assert await ids(Query(states=(State.KILLED,))) == [two.id]
    assert await ids(Query(template="base")) == [two.id]
    assert await ids(Query(name="one")) == [one.id]


@pytest.mark.parametrize("cursor", ["", "x", "AAAA", "é", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk6eA"])
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        cursor_decode(cursor)
    assert caught.value.code == "invalid_cursor"


async def test_a_drain_ends_all(world: Any) -> None:
    for _ in range(3):
        await world.control.sandbox_create(world.me, SandboxSpec())
    await world.control.drain()
    assert world.node.guests == {}
    page = await world.control.sandbox_list(world.me, Query(), None, 10)
    assert {item.end_reason for item in page.items} == {EndReason.SERVER_DRAINED}


async def test_a_create_that_is_repeated_makes_no_second_sandbox(world: Any) -> None:
    spec = SandboxSpec(metadata={"a": "1", "b": "2"}, env={"X": "1", "Y": "2"})
    first, started = await world.control.sandbox_create(world.me, spec, "k1")
    same = SandboxSpec(metadata={"b": "2", "a": "1"}, env={"Y": "2", "X": "1"})
    again, repeated = await world.control.sandbox_create(world.me, same, "k1")
    assert (again.id, repeated.way) == (first.id, "repeat")
    assert started.way != "repeat"
    assert len(world.node.orders) == 1
    with pytest.raises(Conflict) as caught:
        await world.control.sandbox_create(world.me, SandboxSpec(), "k1")
    assert caught.value.code == "idempotency_conflict"
    other, _ = await world.control.sandbox_create(world.other, spec, "k1")
    assert other.id != first.id
    await world.control.sandbox_kill(world.me, first.id)
    ended, _ = await world.control.sandbox_create(world.me, spec, "k1")
    assert (ended.id, ended.state) == (first.id, State.KILLED)


async def test_repeats_that_come_while_it_is_made_wait_for_it(world: Any) -> None:
    world.node.create_gate = anyio.Event()
    found: list[str] = []

    async def create() -> None:
        found.append((await world.control.sandbox_create(world.me, SandboxSpec(), "k"))[0].id)

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(create)
        await anyio.wait_all_tasks_blocked()
        assert found == []
        world.node.create_gate.set()
    assert len(found) == 20
    assert len(set(found)) == len(world.node.orders) == 1


async def test_a_repeat_that_has_waited_for_too_long_may_be_tried_again(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IDEMPOTENCY_WAIT_S_MAX", 0.01)
    world.node.create_gate = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.control.sandbox_create, world.me, SandboxSpec(), "k")
        while not world.node.creating:
            await anyio.sleep(0.001)
        with pytest.raises(Unavailable) as caught:
            await world.control.sandbox_create(world.me, SandboxSpec(), "k")
        assert (caught.value.code, caught.value.retryable) == ("create_unfinished", True)
        world.node.create_gate.set()
    assert (await world.control.sandbox_create(world.me, SandboxSpec(), "k"))[0].state is State.RUNNING
    assert len(world.node.orders) == 1


async def test_a_create_that_failed_can_be_tried_again_with_the_same_key(world: Any) -> None:
    world.node.create_errors = [Unavailable("full")]
    with pytest.raises(Unavailable):
        await world.control.sandbox_create(world.me, SandboxSpec(), "k")
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(), "k")
    assert sandbox.state is State.RUNNING


@pytest.mark.parametrize("key", ["x" * 256, "é", "a\nb"])
async def test_a_key_that_is_none_is_refused(world: Any, key: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await world.control.sandbox_create(world.me, SandboxSpec(), key)
    assert caught.value.code == "invalid_idempotency_key"


async def test_a_sandbox_is_found_by_its_owners_id_for_ever_and_only_by_its_owner(world: Any) -> None:
    spec = SandboxSpec(external_id="run-7:step.1")
    first, _ = await world.control.sandbox_create(world.me, spec)
    theirs, _ = await world.control.sandbox_create(world.other, spec)
    await world.control.sandbox_kill(world.me, first.id)
    assert (await world.control.sandbox_get(world.me, "run-7:step.1")).id == first.id
    assert (await world.control.sandbox_get(world.other, "run-7:step.1")).id == theirs.id
    with pytest.raises(Conflict) as caught:
        await world.control.sandbox_create(world.me, spec)
    assert caught.value.code == "id_taken"
    with pytest.raises(InvalidArgument):
        await world.control.sandbox_create(world.me, SandboxSpec(external_id="a/b"))


async def test_quotas_are_exact_under_a_burst(world: Any) -> None:
    me = replace(world.me, tenant_quota=Quota(sandboxes=3))
    results: list[str] = []

    async def create() -> None:
        try:
            await world.control.sandbox_create(me, SandboxSpec())
            results.append("made")
        except LimitExceeded as error:
            results.append(error.code)

    async with anyio.create_task_group() as tasks:
        for _ in range(25):
            tasks.start_soon(create)
    assert (results.count("made"), results.count("quota_exceeded")) == (3, 22)
    assert len(world.node.orders) == 3
    first = (await world.control.sandbox_list(me, Query(), None, 1)).items[0]
    await world.control.sandbox_kill(me, first.id)
    await world.control.sandbox_create(me, SandboxSpec())


async def test_a_list_is_counted_and_cut_by_time(world: Any) -> None:
    for _ in range(3):
        await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=10**5))
        await world.clock.advance(10)
    await world.control.sandbox_create(world.other, SandboxSpec())
    begin = world.clock.now() - timedelta(seconds=30)

    async def total(**filters: Any) -> Any:
        return (await world.control.sandbox_list(world.me, Query(count=True, **filters), None, 1)).total

    assert await total() == 3
    assert await total(created_after=begin + timedelta(seconds=10)) == 2
    assert await total(created_before=begin + timedelta(seconds=10)) == 1
    assert (await world.control.sandbox_list(world.me, Query(), None, 1)).total is None


async def test_who_killed_it_is_kept(world: Any) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec())
    killed = await world.control.sandbox_kill(world.me, sandbox.id)
    assert killed.end_detail == f"by the key {world.me.key_id}"


async def test_a_claim_that_failed_is_counted(world: Any) -> None:
    world.node.failed_ways = ("pool", "shell")
    await world.control.sandbox_create(world.me, SandboxSpec())
    text = world.control.metrics.render({}).decode()
    assert 'atoll_claim_failures_total{way="pool"} 1.0' in text
    assert 'atoll_claim_failures_total{way="shell"} 1.0' in text
    world.node.create_errors = [Unavailable("no")]
    with pytest.raises(Unavailable):
        await world.control.sandbox_create(world.me, SandboxSpec())
    assert 'atoll_claim_failures_total{way="pool"} 2.0' in world.control.metrics.render({}).decode()
