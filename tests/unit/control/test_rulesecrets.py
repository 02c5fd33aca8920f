"""Secrets that rules of a policy name: which grant comes of it, for which host, and what the node is told."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.control import rulesecrets
from atoll.model.errors import Conflict, InvalidArgument, NotFound
from atoll.model.policy import HttpRule, Mode, Policy
from atoll.model.sandbox import SandboxSpec
from atoll.model.secret import Hidden, Secret

pytestmark = pytest.mark.anyio

FREE = Secret("api-key", (), by_rule=True)
BOUND = Secret("TOKEN", ("own.example:443",), header="X-Own")


def policy(*rules: HttpRule) -> Policy:
    return Policy(mode=Mode.PUBLIC, http=rules)


def named(host: str, name: str) -> HttpRule:
    return HttpRule(host, set_headers={"Authorization": f"Bearer ${{secrets.{name}}}", "X-Plain": "1"})


def test_a_header_gets_a_placeholder_and_the_value_goes_beside_it() -> None:
    asked = policy(named("a.example", "api-key"), named("b.example", "api-key"), HttpRule("c.example"))
    told, (grant,) = rulesecrets.granted(asked, {"api-key": (FREE, Hidden("v"))}, lambda: "PLACE")
    assert told.http[0].set_headers == {"Authorization": "Bearer PLACE", "X-Plain": "1"}
    assert [grant.bound_to(host, 8443) for host in ("a.example", "b.example", "c.example")] == [True, True, False]
    assert (grant.inside, grant.value.reveal()) == (False, "v")


def test_a_secret_with_hosts_goes_to_those_only() -> None:
    asked = policy(named("evil.example", "TOKEN"))
    _, (grant,) = rulesecrets.granted(asked, {"TOKEN": (BOUND, Hidden("v"))}, lambda: "PLACE")
    assert not grant.bound_to("evil.example", 443)
    assert grant.bound_to("own.example", 443)
    assert grant.secret.header == "", "what it does by itself it does for sandboxes that were given it"


def test_a_header_without_its_secret_is_not_set() -> None:
    told, grants = rulesecrets.granted(policy(named("a.example", "gone")), {}, lambda: "PLACE")
    assert told.http[0].set_headers == {"X-Plain": "1"}
    assert grants == ()
    plain = policy(HttpRule("a.example", set_headers={"X": "1"}))
    assert rulesecrets.granted(plain, {}, lambda: "PLACE") == (plain, ())


async def test_sandboxes_follow_a_secret_that_a_rule_names(world: Any) -> None:
    secrets, policies = world.control.secrets, world.control.policies
    kept = await secrets.put(world.me, FREE, "first")
    spec = SandboxSpec(policy=policy(named("a.example", "api-key")))
    sandbox, _ = await world.control.sandbox_create(world.me, spec)
    (grant,) = world.node.networks[sandbox.id].grants
    assert grant.value.reveal() == "first"
    await secrets.put(world.me, FREE, "second")
    await policies.secret_changed(world.me, kept, "secret.kept")
    assert world.node.networks[sandbox.id].grants[0].value.reveal() == "second"
    shown = await policies.get(world.me, sandbox.id)
    assert shown.policy.http[0].set_headers["Authorization"] == "Bearer ${secrets.api-key}"
    await secrets.remove(world.me, "api-key")
    await policies.secret_changed(world.me, "api-key", "secret.removed")
    assert world.node.networks[sandbox.id].grants == ()
    with pytest.raises(NotFound):
        await world.control.sandbox_create(world.me, spec)
    with pytest.raises(NotFound):
        await policies.set(world.other, sandbox.id, policy())


async def test_what_a_secret_for_rules_cannot_be(world: Any) -> None:
    secrets = world.control.secrets
    await secrets.put(world.me, FREE, "value", fresh=True)
    with pytest.raises(Conflict):
        await secrets.put(world.me, FREE, "value", fresh=True)
    with pytest.raises(InvalidArgument, match="for rules"):
        await world.control.sandbox_create(world.me, SandboxSpec(secrets=("api-key",)))
    for wrong in (
        Secret("a{b", (), by_rule=True),
        Secret("a/b", (), by_rule=True),
        Secret("", (), by_rule=True),
        Secret("a", ("x.example",), by_rule=True),
        Secret("a", (), by_rule=True, header="X"),
        Secret("a", (), by_rule=True, metadata={"k": "v" * 5000}),
        Secret("a", ()),
    ):
        with pytest.raises(InvalidArgument):
            await secrets.put(world.me, wrong, "value")
