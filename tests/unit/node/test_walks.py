"""Walks over disks: a few at a time, and none for somebody who left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import anyio
import pytest

from atoll.model import limits
from atoll.model.errors import NotFound
from atoll.node.walks import Walks

pytestmark = pytest.mark.anyio


async def test_what_a_walk_finds_and_says_is_its_callers() -> None:
    def refused(_look: Callable[[], None]) -> None:
        raise NotFound("nothing")

    assert await Walks().walk(lambda _look: 7) == 7
    with pytest.raises(NotFound):
        await Walks().walk(refused)


async def test_a_caller_who_leaves_ends_the_walk() -> None:
    begun, ended = threading.Event(), threading.Event()

    def endless(look: Callable[[], None]) -> None:
        begun.set()
        try:
            while True:
                look()
                time.sleep(0.001)
        finally:
            ended.set()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Walks().walk, endless)
            while not begun.is_set():
                await anyio.sleep(0.001)
            tasks.cancel_scope.cancel()
    assert ended.is_set(), "and what it uses is let go of only after that"


async def test_there_are_only_a_few_at_a_time() -> None:
    walks, going_on = Walks(), threading.Event()
    begun: list[int] = []

    def one(_look: Callable[[], None]) -> None:
        begun.append(1)
        assert going_on.wait(10)

    async with anyio.create_task_group() as tasks:
        for _ in range(limits.DISK_WALKS_MAX + 1):
            tasks.start_soon(walks.walk, one)
        while len(begun) < limits.DISK_WALKS_MAX:
            await anyio.sleep(0.001)
        await anyio.sleep(0.01)
        assert len(begun) == limits.DISK_WALKS_MAX
        going_on.set()
    assert len(begun) == limits.DISK_WALKS_MAX + 1
