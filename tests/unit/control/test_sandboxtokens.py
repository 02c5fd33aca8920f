"""Tokens of one sandbox open that one, and one thing of it."""

from __future__ import annotations

import pytest

from atoll.control.sandboxtokens import TokenKind
from atoll.model.errors import NotFound, Unauthenticated
from atoll.model.sandbox import SandboxSpec
from tests.unit.control.conftest import World

pytestmark = pytest.mark.anyio


async def test_a_token_opens_its_own_sandbox_only(world: World) -> None:
    tokens = world.control.ingress.tokens
    mine, _ = await world.control.sandbox_create(world.me, SandboxSpec("base"))
    other, _ = await world.control.sandbox_create(world.me, SandboxSpec("base"))
    token = tokens.mint(TokenKind.INSIDE, mine.id)
    principal = await tokens.admit(mine.id, inside=token)
    assert principal.owner == world.me.owner
    assert "admin" not in principal.scopes
    for wrong in (tokens.mint(TokenKind.INSIDE, other.id), tokens.mint(TokenKind.PORTS, mine.id), "", "é"):
        with pytest.raises(Unauthenticated):
            await tokens.admit(mine.id, inside=wrong)


async def test_a_sandbox_that_does_not_exist_has_none(world: World) -> None:
    for name in ("nothing", "sb" + "0" * 36):
        with pytest.raises(NotFound):
            await world.control.ingress.tokens.admit(name, inside="x")
