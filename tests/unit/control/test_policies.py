"""Policies and secrets on record: what is written is sent, sent again at a start, and nobody else's."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import UTC, datetime

import anyio
import pytest

from atoll.control.authz import READ
from atoll.control.events import EventFilter
from atoll.control.policies import parse_trial
from atoll.model import limits
from atoll.model.errors import Conflict, InvalidArgument, NotFound, Unavailable
from atoll.model.policy import HttpRule, Mode, Policy, decide
from atoll.model.sandbox import SandboxSpec
from atoll.model.secret import Grant, Secret
from atoll.testing.clock import VirtualClock
from atoll.testing.nodes import FakeNode
from atoll.wire.network import Ask, NetworkEvent, Trial
from atoll.wire.public.policies import PolicyView
from tests.unit.control.conftest import Opener, World

pytestmark = pytest.mark.anyio
POLICY = Policy(allow=("a.test",))


def reaches(node: FakeNode, sandbox_id: str, name: str) -> bool:
    order = node.networks.get(sandbox_id)
    return order is not None and decide(order.rules, name, None, 443).allowed


async def test_a_policy_is_known_to_the_node_before_the_sandbox_lives(world: World) -> None:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(template="base", policy=POLICY))
    assert reaches(world.node, sandbox.id, "a.test")
    await world.control.policies.set(world.me, sandbox.id, Policy())
    assert not reaches(world.node, sandbox.id, "a.test")


async def test_who_may_only_read_is_shown_no_values_of_headers(world: World) -> None:
    rule = HttpRule("a.test", set_headers={"Authorization": "Bearer k"}, remove_headers=("X-A",))
    policy = replace(POLICY, http=(rule,))
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(template="base", policy=policy))
    assert (await world.control.policies.get(world.me, sandbox.id)).policy == policy
    reader = replace(world.me, scopes=frozenset({READ}))
    shown = (await world.control.policies.get(reader, sandbox.id)).policy
    assert shown == replace(policy, http=(replace(rule, set_headers={"Authorization": ""}),))


async def test_a_policy_that_is_not_understood_makes_nothing(world: World) -> None:
    for wrong in (Policy(allow=("no host",)), Policy(allow=("@missing",)), Policy(connections_max=0)):
        with pytest.raises(InvalidArgument):
            await world.control.sandbox_create(world.me, SandboxSpec(template="base", policy=wrong))
    assert world.node.orders == []


async def test_a_restart_sends_what_is_on_record(open_world: Opener) -> None:
    node, clock = FakeNode(), VirtualClock()
    async with open_world(node, clock) as world:
        sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(template="base", policy=POLICY))
    node.networks.clear()
    async with open_world(node, clock) as world:
        assert reaches(node, sandbox.id, "a.test")
        await world.control.sandbox_kill(world.me, sandbox.id)
        with pytest.raises(Conflict):
            await world.control.policies.set(world.me, sandbox.id, POLICY)


async def test_secrets_are_their_owners_alone(world: World) -> None:
    secrets = world.control.secrets
    await secrets.put(world.me, Secret("KEY", ("a.test",)), "s3cr3t")
    assert [secret.name for secret in await secrets.list(world.me)] == ["KEY"]
    assert await secrets.list(world.other) == []
    for act in (secrets.get, secrets.remove):
        with pytest.raises(NotFound):
            await act(world.other, "KEY")
    with pytest.raises(NotFound):
        await world.control.sandbox_create(world.other, SandboxSpec(template="base", secrets=("KEY",)))


async def test_a_sandbox_gets_a_placeholder_of_its_own(world: World) -> None:
    await world.control.secrets.put(world.me, Secret("KEY", ("a.test",)), "s3cr3t")
    spec = SandboxSpec(template="base", policy=POLICY, secrets=("KEY",))
    grants: list[Grant] = []
    for _ in range(2):
        sandbox, _ = await world.control.sandbox_create(world.me, spec)
        grants += world.node.networks[sandbox.id].grants
    assert len({grant.placeholder for grant in grants}) == 2
    assert {grant.value.reveal() for grant in grants} == {"s3cr3t"}
    assert "s3cr3t" not in repr(grants)


async def test_a_rotated_secret_reaches_the_node_at_once(world: World) -> None:
    await world.control.secrets.put(world.me, Secret("KEY", ("a.test",)), "first1")
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(template="base", secrets=("KEY",)))
    kept = await world.control.secrets.put(world.me, Secret("KEY", ("a.test",)), "second")
    await world.control.policies.secret_changed(world.me, kept, "secret.kept")
    assert world.node.networks[sandbox.id].grants[0].value.reveal() == "second"
    await world.control.secrets.remove(world.me, "KEY")
    await world.control.policies.secret_changed(world.me, "KEY", "secret.removed")
    assert world.node.networks[sandbox.id].grants == ()


async def test_the_node_is_told_whose_a_sandbox_is(world: World) -> None:
    """What all sandboxes share is shared out among owners there."""
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(template="base", policy=POLICY))
    assert world.node.networks[sandbox.id].owner == world.me.owner


def test_places() -> None:
    assert parse_trial("https://A.test/x", "put") == Trial("a.test", 443, "PUT", "/x")
    assert parse_trial("http://a.test") == Trial("a.test", 80, "GET", "/", plain=True)
    assert parse_trial("a.test:22") == Trial("a.test", 22)
    assert parse_trial("192.0.2.1:5432") == Trial("192.0.2.1", 5432)
    for wrong in (
        "",
        "https://",
        "ftp://a.test",
        "a.test:99999",
        "a test",
        "[::1]:80",
        "http://0x7f000001/",
        "http://7/",
    ):
        with pytest.raises(InvalidArgument) as caught:
            parse_trial(wrong)
        assert caught.value.code == "invalid_url"


async def test_what_is_enforced_can_be_read_back(open_world: Opener) -> None:
    """Lists are put in, and ports said. A list that the operator has taken away allows nothing, and that shows."""
    node, clock = FakeNode(), VirtualClock()
    lists = {"web": ["b.test", "*.c.test:8443", "198.51.100.0/24:80-90"]}
    async with open_world(node, clock, egress_lists=lists) as world:
        policy = Policy(allow=("a.test", "@web"), deny=("198.51.100.7",))
        sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(template="base", policy=policy))
        held = PolicyView.of(policy, (), (await world.control.policies.get(world.me, sandbox.id)).enforced).enforced
        assert held.mode == "listed"
        assert held.allow == ["a.test:80,443", "b.test:80,443", "*.c.test:8443", "198.51.100.0/24:80-90"]
        assert held.deny == ["198.51.100.7:*"]
        closed = await world.control.policies.set(world.me, sandbox.id, Policy(mode=Mode.NOTHING))
        assert closed.enforced.policy.mode is Mode.NOTHING
        await world.control.policies.set(world.me, sandbox.id, policy)
    node.networks.clear()
    async with open_world(node, clock) as world:
        found = await world.control.policies.get(world.me, sandbox.id)
        assert found.policy == policy
        assert (found.enforced.policy.mode, found.enforced.allow) == (Mode.NOTHING, ())


async def test_always_is_a_rule_before_the_connection_goes_on(world: World) -> None:
    """The client that is let through may be back at once, and nobody is asked again. An old question lists nothing."""
    asking = Policy(allow=("a.test",), ask=True)
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(template="base", policy=asking))
    world.node.asks["q1"] = Ask("q1", "b.test", 443, datetime.now(UTC))
    known: list[bool] = []
    answer = world.node.network_answer

    def watched(sandbox_id: str, ask_id: str, allowed: bool) -> Ask:
        known.append(reaches(world.node, sandbox_id, "b.test"))
        return answer(sandbox_id, ask_id, allowed)

    world.node.network_answer = watched  # type: ignore[method-assign]
    await world.control.policies.answer(world.me, sandbox.id, "q1", "always")
    assert known == [True]
    with pytest.raises(NotFound):
        await world.control.policies.answer(world.me, sandbox.id, "q1", "always")
    network = await world.control.policies.get(world.me, sandbox.id)
    assert network.policy.allow == ("a.test", "b.test:443")


async def test_changes_at_once_do_not_undo_each_other(world: World) -> None:
    """Each reads what is on record, changes its part and writes all of it."""
    await world.control.secrets.put(world.me, Secret("KEY", ("a.test",)), "s3cr3t")
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(template="base", policy=Policy(ask=True)))
    world.node.asks["q1"] = Ask("q1", "c.test", 443, datetime.now(UTC))
    policies = world.control.policies
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(policies.set, world.me, sandbox.id, Policy(allow=("b.test",), ask=True))
        tasks.start_soon(policies.set_secrets, world.me, sandbox.id, ("KEY",))
        tasks.start_soon(policies.answer, world.me, sandbox.id, "q1", "always")
    network = await policies.get(world.me, sandbox.id)
    assert (network.policy.allow, network.secrets) == (("b.test", "c.test:443"), ("KEY",))
    assert reaches(world.node, sandbox.id, "b.test")
    assert reaches(world.node, sandbox.id, "c.test")
    assert len(world.node.networks[sandbox.id].grants) == 1


async def test_a_sandbox_whose_inside_does_not_answer_delays_no_other_and_no_change(world: World) -> None:
    await world.control.secrets.put(world.me, Secret("KEY", ("a.test",)), "first1")
    spec = SandboxSpec(template="base", policy=POLICY, secrets=("KEY",))
    first, second = [(await world.control.sandbox_create(world.me, spec))[0] for _ in range(2)]
    world.node.deaf = {first.id: anyio.Event()}
    kept = await world.control.secrets.put(world.me, Secret("KEY", ("a.test",)), "second")
    policies = world.control.policies
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(policies.secret_changed, world.me, kept, "secret.kept")
        with anyio.fail_after(5):
            while world.node.told != [second.id]:
                await anyio.sleep(0.005)
        for sandbox in (first, second):
            assert world.node.networks[sandbox.id].grants[0].value.reveal() == "second"
        tasks.start_soon(policies.set, world.me, first.id, Policy())
        with anyio.fail_after(5):
            while reaches(world.node, first.id, "a.test"):
                await anyio.sleep(0.005)
        world.node.deaf[first.id].set()


async def test_always_for_a_policy_that_is_full_is_refused_and_changes_nothing(
    open_world: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "POLICY_RULES_MAX", 2)
    node, clock = FakeNode(), VirtualClock()
    full = Policy(allow=("a.test", "b.test"), ask=True)
    async with open_world(node, clock) as world:
        sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(template="base", policy=full))
        node.asks["q1"] = Ask("q1", "c.test", 443, datetime.now(UTC))
        with pytest.raises(InvalidArgument) as caught:
            await world.control.policies.answer(world.me, sandbox.id, "q1", "always")
        assert caught.value.code == "invalid_policy"
        assert (await world.control.policies.get(world.me, sandbox.id)).policy == full
        assert node.answers == []
    node.networks.clear()
    async with open_world(node, clock):
        assert reaches(node, sandbox.id, "a.test")


async def test_what_happened_while_the_database_was_away_is_in_the_log_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the log cannot take for another reason does not hold up what comes after it."""
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(template="base"))
    policies = world.control.policies
    happened = [NetworkEvent(number, datetime.now(UTC), "secret_strayed", secret=f"S{number}") for number in range(3)]
    coming = iter(happened)

    async def network_event() -> tuple[str, NetworkEvent]:
        return sandbox.id, next(coming)

    monkeypatch.setattr(world.node, "network_event", network_event)
    record = policies._ledger.record
    for error in (Unavailable("away"), Unavailable("away"), None, ValueError("a bug"), None):

        async def failing(sandbox_id: str, error: Exception | None = error) -> object:
            if error is not None:
                raise error
            return await record(sandbox_id)

        monkeypatch.setattr(policies._ledger, "record", failing)
        with contextlib.suppress(Unavailable, ValueError):
            await policies.log_step()
    await world.control.accounts.events.flush()
    page = await world.control.accounts.events.page(EventFilter(owner=None, actions=("network.*",)), 0, 100)
    assert [event.detail["secret"] for event in page.items] == ["S0", "S2"]
