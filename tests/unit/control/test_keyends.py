"""What a key holds open ends with it: at the moment in which it expires, as when it is revoked."""

from __future__ import annotations

from datetime import timedelta

import anyio
import pytest

from atoll.control.ingress import Knock
from atoll.control.keyends import KeyEnds, expired, revoked
from atoll.control.keys import KeySpec
from atoll.model import limits
from atoll.model.errors import AtollError, Unauthenticated
from atoll.model.sandbox import SandboxSpec
from atoll.testing.clock import VirtualClock
from tests.unit.control.conftest import World

pytestmark = pytest.mark.anyio


async def short_key(world: World, lasts_s: float) -> str:
    spec = KeySpec("short", expires_at=world.clock.now() + timedelta(seconds=lasts_s))
    return (await world.control.accounts.keys.create(world.me, "default", spec))[1]


async def test_what_a_key_holds_open_ends_when_it_expires(world: World) -> None:
    """Each with its own key, to the second; who came by another way stays."""
    keys, ingress = world.control.accounts.keys, world.control.ingress
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=10**6))
    principals = [await keys.authenticate(await short_key(world, lasts_s)) for lasts_s in (200, 100)]
    admitted = await ingress.admit(Knock(sandbox.id, 80, await short_key(world, 100)))
    ended: dict[str, str] = {}

    async def stay(name: str, held: object) -> None:
        try:
            with held:  # type: ignore[attr-defined]
                await anyio.sleep_forever()
        except AtollError as error:
            ended[name] = error.code

    async with anyio.create_task_group() as tasks:
        for principal, name in zip(principals, ("late", "early"), strict=True):
            tasks.start_soon(stay, name, keys.ends.open_by(principal.key_id))
        tasks.start_soon(stay, "lasting", keys.ends.open_by(world.me.key_id))
        tasks.start_soon(stay, "port", ingress.visit(admitted))
        await world.clock.advance(99)
        await anyio.wait_all_tasks_blocked()
        assert ended == {}
        await world.clock.advance(1)
        await anyio.wait_all_tasks_blocked()
        assert ended == {"early": "key_expired", "port": "access_changed"}
        await world.clock.advance(100)
        await anyio.wait_all_tasks_blocked()
        assert ended["late"] == "key_expired"
        assert "lasting" not in ended
        tasks.cancel_scope.cancel()


async def test_what_waited_while_its_key_expired_does_not_open(world: World) -> None:
    keys, ingress = world.control.accounts.keys, world.control.ingress
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=10**6))
    key = await short_key(world, 10)
    principal = await keys.authenticate(key)
    admitted = await ingress.admit(Knock(sandbox.id, 80, key))
    await world.clock.advance(10)
    with pytest.raises(Unauthenticated) as stream, keys.ends.open_by(principal.key_id):
        pass
    with pytest.raises(Unauthenticated) as visit, ingress.visit(admitted):
        pass
    assert (stream.value.code, visit.value.code) == ("key_expired", "key_expired")


async def test_a_key_that_is_valid_again_because_the_clock_was_set_opens() -> None:
    clock = VirtualClock()
    ends = KeyEnds(clock)
    ends.end("ak1", expired)
    ends.expects("ak1", clock.now() + timedelta(seconds=1))
    with ends.open_by("ak1"):
        pass
    ends.end("ak1", revoked)
    ends.expects("ak1", clock.now() + timedelta(seconds=1))
    with pytest.raises(Unauthenticated):
        ends.check("ak1")


async def test_what_is_remembered_of_keys_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KEYS_GONE_MAX", 3)
    ends = KeyEnds(VirtualClock())
    for number in range(10):
        ends.expects(f"ak{number}", ends._clock.now() + timedelta(seconds=1))
        ends.end(f"ak{number}", revoked)
    assert (len(ends._gone), len(ends._expiring), len(ends._open)) == (3, 0, 0)
