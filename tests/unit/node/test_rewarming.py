"""Interpreters of copies: warm again one box after the other, and only while nobody waits for a sandbox."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import anyio
import pytest

from atoll.model import limits
from atoll.node.rewarming import Rewarming

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Seen:
    """What was started, when, and how many at a time."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.at_once = self.at_once_max = 0
        self.done = asyncio.Event()

    def start_of(self, name: str, *, last: bool = False) -> Callable[[], Awaitable[None]]:
        async def start() -> None:
            self.started.append(name)
            self.at_once += 1
            self.at_once_max = max(self.at_once_max, self.at_once)
            await asyncio.sleep(0.01)
            self.at_once -= 1
            if last:
                self.done.set()

        return start


async def test_copies_are_warmed_in_order_and_never_two_at_a_time() -> None:
    rewarming, seen = Rewarming(), Seen()
    for name in "abc":
        rewarming.add(seen.start_of(name, last=name == "c"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rewarming.run, lambda: 1e9)
        with anyio.fail_after(5):
            await seen.done.wait()
            seen.done.clear()
            rewarming.add(seen.start_of("d", last=True))  # one that comes when all were done
            await seen.done.wait()
        tasks.cancel_scope.cancel()
    assert (seen.started, seen.at_once_max) == (list("abcd"), 1)


async def test_one_that_fails_does_not_keep_the_others_cold() -> None:
    async def fail() -> None:
        raise OSError("too many open files")

    rewarming, seen = Rewarming(), Seen()
    rewarming.add(fail)
    rewarming.add(seen.start_of("a", last=True))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rewarming.run, lambda: 1e9)
        with anyio.fail_after(5):
            await seen.done.wait()
        tasks.cancel_scope.cancel()


async def test_nothing_starts_while_somebody_waits_for_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONTEXT_REWARM_S", 0.1)
    rewarming, seen = Rewarming(), Seen()
    rewarming.add(seen.start_of("a", last=True))
    busy_until_s = time.monotonic() + 0.3
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rewarming.run, lambda: max(0.0, time.monotonic() - busy_until_s))
        await asyncio.sleep(0.2)
        assert not seen.started
        with anyio.fail_after(5):
            await seen.done.wait()
        assert time.monotonic() >= busy_until_s + limits.CONTEXT_REWARM_S
        tasks.cancel_scope.cancel()
