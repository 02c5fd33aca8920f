"""Who gets through which door: owners, strangers, links, and too many at once."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from functools import partial

import anyio
import pytest

from atoll.control.authz import READ, Principal
from atoll.control.events import EventFilter
from atoll.control.ingress import Admission, Ingress, Knock
from atoll.model import limits
from atoll.model.errors import AtollError, Conflict, Forbidden, GuestFailed, InvalidArgument, LimitExceeded, NotFound
from atoll.model.errors import Unauthenticated as NoKey
from atoll.model.lifecycle import State
from atoll.model.port import ANY_PORT, PortAccess
from atoll.model.sandbox import SandboxSpec
from tests.unit.control.conftest import World

pytestmark = pytest.mark.anyio

PORT = 8000


async def made(world: World) -> str:
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec())
    return sandbox.id


def with_keys(world: World) -> Ingress:
    """Doors that know three keys: the owner's, one that may only read, and a stranger's."""
    known = {"mine": world.me, "reader": Principal(world.me.owner, "ak3", frozenset({READ})), "other": world.other}

    async def authenticate(key: str, _source: str) -> Principal:
        return known[key]

    ingress = world.control.ingress
    ingress._authenticate = authenticate
    return ingress


@pytest.mark.parametrize(("key", "expected"), [("", NoKey), ("other", NotFound), ("reader", Forbidden), ("mine", None)])
async def test_a_private_door(world: World, key: str, expected: type[AtollError] | None) -> None:
    ingress = with_keys(world)
    knock = Knock(await made(world), PORT, key)
    if expected is None:
        assert not (await ingress.admit(knock)).access.public
        return
    with pytest.raises(expected):
        await ingress.admit(knock)


async def test_another_owners_sandbox_answers_as_none(world: World) -> None:
    ingress = with_keys(world)
    there, nowhere = await made(world), "sb" + "0" * 36
    told = []
    for sandbox_id in (there, nowhere):
        with pytest.raises(NotFound) as refused:
            await ingress.admit(Knock(sandbox_id, PORT, "other"))
        told.append((refused.value.code, refused.value.message.replace(sandbox_id, "")))
        with pytest.raises(NotFound):
            await ingress.link(world.other, sandbox_id, PORT, 60)
        with pytest.raises(NotFound):
            await ingress.access_change(world.other, sandbox_id, PORT, public=True)
    assert told[0] == told[1]


async def test_a_link_opens_its_port_until_it_ends(world: World) -> None:
    sandbox_id = await made(world)
    ingress = world.control.ingress
    link = await ingress.link(world.me, sandbox_id, PORT, 60)
    await ingress.admit(Knock(sandbox_id, PORT, token=link.token))
    with pytest.raises(Forbidden):
        await ingress.admit(Knock(sandbox_id, PORT + 1, token=link.token))
    assert link.expires_at is not None
    await world.clock.advance(61)
    with pytest.raises(Forbidden):
        await ingress.admit(Knock(sandbox_id, PORT, token=link.token))


@pytest.mark.parametrize("expires_s", [0, -1, limits.PORT_LINK_S_MAX + 1, float("nan")])
async def test_a_link_has_a_sensible_end(world: World, expires_s: float) -> None:
    with pytest.raises(InvalidArgument):
        await world.control.ingress.link(world.me, await made(world), PORT, expires_s)


async def test_an_ended_sandbox_has_no_doors(world: World) -> None:
    sandbox_id = await made(world)
    ingress = world.control.ingress
    await ingress.access_change(world.me, sandbox_id, PORT, public=True)
    await ingress.admit(Knock(sandbox_id, PORT))
    await world.control.sandbox_kill(world.me, sandbox_id)
    with pytest.raises(Conflict):
        await ingress.admit(Knock(sandbox_id, PORT))
    with pytest.raises(Conflict):
        await ingress.dial(sandbox_id, PORT)


async def test_what_listens_is_reached_and_what_does_not_is_not(world: World) -> None:
    sandbox_id = await made(world)
    near, far = socket.socketpair()

    async def connected() -> socket.socket:
        return near

    world.node.ports[PORT] = connected
    with await world.control.ingress.dial(sandbox_id, PORT), far:
        far.sendall(b"x")
        assert near.recv(1) == b"x"
    with pytest.raises(GuestFailed) as closed:
        await world.control.ingress.dial(sandbox_id, PORT + 1)
    assert closed.value.code == "port_closed"


@pytest.mark.parametrize("state", [State.PAUSING, State.RESUMING])
async def test_whoever_comes_while_it_falls_asleep_or_wakes_waits_for_it(world: World, state: State) -> None:
    """A browser has several connections: the second one must not be told that the first one wakes it."""
    ingress = with_keys(world)
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(auto_resume=True))
    knock = Knock(sandbox.id, PORT, "mine")
    world.node.pause_s = world.node.resume_s = 0.05
    async with anyio.create_task_group() as tasks:
        if state is State.PAUSING:
            tasks.start_soon(world.control.states.pause, world.me, sandbox.id)
        else:
            await world.control.states.pause(world.me, sandbox.id)
            tasks.start_soon(ingress.admit, knock)
        with anyio.fail_after(5):
            while (await world.control.sandbox_get(world.me, sandbox.id)).state is not state:
                await anyio.sleep(0.005)
        for _ in range(2):
            tasks.start_soon(ingress.admit, knock)
    assert (await world.control.sandbox_get(world.me, sandbox.id)).state is State.RUNNING
    assert len(world.node.resumed) == 1


async def test_whoever_waits_for_a_pause_of_one_that_may_not_wake_is_told_so(world: World) -> None:
    ingress = with_keys(world)
    sandbox_id = await made(world)
    world.node.pause_s = 0.05
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.control.states.pause, world.me, sandbox_id)
        with anyio.fail_after(5):
            while (await world.control.sandbox_get(world.me, sandbox_id)).state is not State.PAUSING:
                await anyio.sleep(0.005)
        with pytest.raises(Conflict) as refused:
            await ingress.admit(Knock(sandbox_id, PORT, "mine"))
    assert refused.value.code == "not_running"
    assert world.node.resumed == []


async def test_what_comes_through_an_open_connection_wakes_from_standby(world: World) -> None:
    ingress = world.control.ingress
    sandbox_id = await made(world)
    with ingress.visit(admission(sandbox_id)) as visit:
        assert not ingress.stands_still(visit)
        await world.control.states.standby(world.me, sandbox_id)
        assert ingress.stands_still(visit)
        await ingress.wake(visit)
        assert not ingress.stands_still(visit)
    assert world.node.frozen == set()


def admission(sandbox_id: str, owner: str = "me") -> Admission:
    return Admission(Knock(sandbox_id, PORT), owner, PortAccess(), "public")


async def test_one_sandbox_cannot_take_all_places(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "INGRESS_CONNECTIONS_PER_SANDBOX_MAX", 1)
    ingress = world.control.ingress
    with ingress.visit(admission("one")):
        with pytest.raises(LimitExceeded), ingress.visit(admission("one")):
            pass
        with ingress.visit(admission("two")):
            pass
    with ingress.visit(admission("one")):
        pass


async def test_one_owner_cannot_take_all_places_with_many_sandboxes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone it may have three quarters; the more others have the less, and somebody new always finds a place."""
    monkeypatch.setattr(limits, "INGRESS_CONNECTIONS_MAX", 400)
    ingress = world.control.ingress
    with ExitStack() as stack:

        def enter_all(owner: str, entered: list[None]) -> None:
            for number in range(1000):
                stack.enter_context(ingress.visit(admission(f"{owner}-{number}", owner)))
                entered.append(None)

        def fill(owner: str) -> int:
            """How many it gets before it is told that it has too many."""
            entered: list[None] = []
            with pytest.raises(LimitExceeded, match="the owner has"):
                enter_all(owner, entered)
            return len(entered)

        assert fill("greedy") == 300
        assert fill("second") == 75
        assert fill("third") == 19
        assert fill("quiet") > 0
    with ingress.visit(admission("one")):
        pass


async def test_a_change_cuts_those_who_would_not_be_let_in_now(world: World) -> None:
    """By link, by key, as anybody; and the owner's own tunnel, which no rule of a port concerns."""
    ingress = with_keys(world)
    sandbox_id = await made(world)
    await ingress.access_change(world.me, sandbox_id, PORT + 1, public=True)
    link = await ingress.link(world.me, sandbox_id, PORT, 60)
    ended: dict[str, str] = {}

    async def stay(name: str, admitted: Admission) -> None:
        try:
            with ingress.visit(admitted):
                await anyio.sleep_forever()
        except Forbidden as error:
            ended[name] = error.code

    async with anyio.create_task_group() as tasks:
        visitors = {
            "link": await ingress.admit(Knock(sandbox_id, PORT, token=link.token)),
            "key": await ingress.admit(Knock(sandbox_id, PORT, "mine")),
            "anybody": await ingress.admit(Knock(sandbox_id, PORT + 1)),
            "owner": await ingress.admit_owner(world.me, sandbox_id, PORT),
        }
        for name, admitted in visitors.items():
            tasks.start_soon(stay, name, admitted)
        await anyio.wait_all_tasks_blocked()
        await ingress.access_change(world.me, sandbox_id, PORT, mask_host="app:1")
        await anyio.wait_all_tasks_blocked()
        assert ended == {}
        await ingress.access_change(world.me, sandbox_id, PORT, revoke_links=True)
        await anyio.wait_all_tasks_blocked()
        assert ended == {"link": "access_changed"}
        await ingress.access_change(world.me, sandbox_id, PORT + 1, public=False)
        await anyio.wait_all_tasks_blocked()
        assert set(ended) == {"link", "anybody"}
        tasks.cancel_scope.cancel()


async def test_what_was_upgraded_ends_with_its_link_and_an_answer_a_while_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positive control: who came with a key, and as anybody, stays. How long is left is no matter of a clock set."""
    monkeypatch.setattr(limits, "INGRESS_ANSWER_AFTER_LINK_S", 0.2)
    ingress = with_keys(world)
    sandbox_id = await made(world)
    link = await ingress.link(world.me, sandbox_id, PORT, 60)
    ended: list[tuple[str, str]] = []

    async def stay(name: str, knock: Knock, *, upgraded: bool) -> None:
        try:
            with ingress.visit(await ingress.admit(knock)) as visit:
                if upgraded:
                    visit.upgraded()
                await anyio.sleep_forever()
        except Forbidden as error:
            ended.append((name, error.code))

    assert link.expires_at is not None
    await world.clock.advance((link.expires_at - world.clock.now()).total_seconds() - 0.1)
    async with anyio.create_task_group() as tasks:
        by_link = Knock(sandbox_id, PORT, token=link.token)
        tasks.start_soon(partial(stay, "answer", by_link, upgraded=False))
        tasks.start_soon(partial(stay, "socket", by_link, upgraded=True))
        tasks.start_soon(partial(stay, "key", Knock(sandbox_id, PORT, "mine"), upgraded=True))
        with anyio.fail_after(10):
            while len(ended) < 2:
                await anyio.sleep(0.01)
        assert ended == [("socket", "port_link_refused"), ("answer", "port_link_refused")]
        tasks.cancel_scope.cancel()


async def test_visits_are_in_the_owners_log(world: World) -> None:
    ingress = with_keys(world)
    sandbox_id = await made(world)
    for _ in range(100):
        with pytest.raises(NoKey):
            await ingress.admit(Knock(sandbox_id, PORT, source="192.0.2.1"))
    with ingress.visit(await ingress.admit(Knock(sandbox_id, PORT, "mine", source="192.0.2.2"))) as visit:
        visit.bytes_in, visit.bytes_out = 3, 5
    with pytest.raises(GuestFailed), ingress.visit(await ingress.admit(Knock(sandbox_id, PORT, "mine"))):
        await ingress.dial(sandbox_id, PORT)
    ingress._visits.log.close()
    await world.control.accounts.events.flush()
    wanted = EventFilter(owner=world.me.owner, actions=("ingress.*",))
    found = (await world.control.accounts.events.page(wanted, 0, 100)).items
    told = {event.result: event for event in found}
    assert set(told) == {"port_private", "ok", "port_closed"}
    refused, let_in = told["port_private"], told["ok"]
    assert (refused.target, refused.source, refused.detail["count"]) == (sandbox_id, "192.0.2.1", "100")
    assert (let_in.actor, let_in.detail["by"], let_in.detail["port"]) == (world.me.key_id, "key", str(PORT))
    assert (let_in.detail["bytes_in"], let_in.detail["bytes_out"]) == ("3", "5")


async def test_a_visit_that_lasts_is_in_the_log_before_it_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LASTING_S", 0.01)
    ingress = with_keys(world)
    sandbox_id = (await world.control.sandbox_create(world.me, SandboxSpec()))[0].id
    events = world.control.accounts.events
    wanted = EventFilter(owner=world.me.owner, actions=("ingress.*",))
    with ingress.visit(await ingress.admit(Knock(sandbox_id, PORT, "mine"))):
        (begun,) = (await events.page(wanted, 0, 100, wait_s=9)).items
    assert (begun.result, begun.target, begun.actor) == ("begun", sandbox_id, world.me.key_id)
    ingress._visits.log.close()
    await events.flush()
    assert [event.result for event in (await events.page(wanted, 0, 100)).items] == ["begun", "ok"]


async def test_a_sandbox_is_made_with_the_rules_of_its_ports(world: World) -> None:
    rules = PortAccess(public=True, mask_host="app.example:{port}")
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(ports=rules))
    assert (await world.control.ingress.admit(Knock(sandbox.id, PORT))).access == rules


async def test_rules_of_ports_that_cannot_be_leave_no_sandbox(world: World) -> None:
    with pytest.raises(InvalidArgument):
        await world.control.sandbox_create(world.me, SandboxSpec(ports=PortAccess(mask_host="two words")))
    assert not any((await world.control.sandbox_counts()).values())


async def test_a_create_that_is_repeated_leaves_the_ports_as_they_are_now(world: World) -> None:
    spec = SandboxSpec(ports=PortAccess(public=True))
    sandbox, _ = await world.control.sandbox_create(world.me, spec, "once")
    await world.control.ingress.access_change(world.me, sandbox.id, ANY_PORT, public=False)
    again, _ = await world.control.sandbox_create(world.me, spec, "once")
    assert again.id == sandbox.id
    assert not (await world.control.ingress.access(world.me, sandbox.id, PORT)).public
