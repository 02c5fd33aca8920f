"""Claims that were answered before their guest was told: whoever asks for one has it told first."""

from __future__ import annotations

import anyio
import pytest

from atoll.node.introductions import Introductions

pytestmark = pytest.mark.anyio
_NEVER_S = 3600.0


async def told(introductions: Introductions, sandbox_id: str, words: list[str]) -> None:
    async with introductions.turn(sandbox_id):
        await anyio.sleep(0)
        words.append(sandbox_id)


async def test_one_that_nobody_asks_for_is_told_after_a_moment() -> None:
    words: list[str] = []
    introductions = Introductions(0.01)
    introductions.begin("a")
    await told(introductions, "a", words)
    assert words == ["a"]


async def test_whoever_asks_has_it_told_and_waits_for_that() -> None:
    words: list[str] = []
    introductions = Introductions(_NEVER_S)
    introductions.begin("a")
    introductions.begin("b")
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(told, introductions, "a", words)
            tasks.start_soon(told, introductions, "b", words)
            await introductions.wait("a")
            assert words == ["a"]
            introductions.hurry("b")
    assert words == ["a", "b"]


async def test_who_was_never_in_a_crowd_or_is_told_is_not_waited_for() -> None:
    introductions = Introductions(0.0)
    introductions.begin("a")
    await told(introductions, "a", [])
    with anyio.fail_after(1):
        await introductions.wait("a")
        await introductions.wait("b")
        introductions.hurry("b")


async def test_a_telling_that_fails_lets_those_who_wait_go_on() -> None:
    introductions = Introductions(_NEVER_S)
    introductions.begin("a")

    async def fails() -> None:
        with pytest.raises(OSError, match="no"):
            async with introductions.turn("a"):
                raise OSError("no")

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fails)
            await introductions.wait("a")
