"""The turnstile lets a few through at once, is fair between owners, and refuses what it cannot hold."""

from __future__ import annotations

import asyncio

import pytest

from atoll.control.turnstile import Turnstile
from atoll.model.errors import Unavailable


async def pass_through(turnstile: Turnstile, owner: str, order: list[str], now: list[int], most: list[int]) -> None:
    async with turnstile.turn(owner):
        now[0] += 1
        most[0] = max(most[0], now[0])
        order.append(owner)
        await asyncio.sleep(0)
        now[0] -= 1


def test_a_crowd_of_one_owner_does_not_hold_up_another() -> None:
    order: list[str] = []
    most = [0]

    async def scene() -> None:
        turnstile = Turnstile(1, 100)
        now = [0]
        async with asyncio.TaskGroup() as tasks:
            for _ in range(20):
                tasks.create_task(pass_through(turnstile, "many", order, now, most))
            await asyncio.sleep(0)
            tasks.create_task(pass_through(turnstile, "one", order, now, most))
        assert turnstile.waiting == 0

    asyncio.run(scene())
    assert len(order) == 21
    assert order.index("one") <= 3
    assert most == [1]


def test_no_more_than_so_many_at_once() -> None:
    most = [0]

    async def scene() -> None:
        turnstile = Turnstile(3, 100)
        now = [0]
        async with asyncio.TaskGroup() as tasks:
            for number in range(30):
                tasks.create_task(pass_through(turnstile, str(number % 4), [], now, most))

    asyncio.run(scene())
    assert most == [3]


def test_the_line_has_an_end() -> None:
    async def scene() -> None:
        turnstile = Turnstile(1, 1)
        inside, release = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            async with turnstile.turn("a"):
                inside.set()
                await release.wait()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(hold())
            await inside.wait()
            tasks.create_task(hold())
            await asyncio.sleep(0)
            with pytest.raises(Unavailable) as caught:
                await turnstile._enter("a")
            assert caught.value.code == "create_queue_full"
            release.set()

    asyncio.run(scene())


def test_nobody_fills_the_line_alone() -> None:
    """One owner may have all of it while nobody else comes; then the last of the longest line makes room."""

    async def scene() -> None:
        turnstile = Turnstile(1, 6)
        served: list[str] = []
        refused: list[str] = []

        async def ask(owner: str) -> None:
            try:
                async with turnstile.turn(owner):
                    served.append(owner)
            except Unavailable:
                refused.append(owner)

        async with asyncio.TaskGroup() as tasks:
            async with turnstile.turn("first"):
                for owner in "aaaaaaa" + "bbbb" + "c":
                    tasks.create_task(ask(owner))
                    await asyncio.sleep(0)
                await asyncio.sleep(0)
                assert turnstile.waiting == 6
                assert sorted(refused) == sorted("a" + "aaa" + "b" + "a"), (
                    "its seventh, those who made room, and a fourth b"
                )
        assert sorted(served) == sorted("aa" + "bbb" + "c")
        async with asyncio.timeout(1), turnstile.turn("d"):
            assert turnstile.waiting == 0

    asyncio.run(scene())


def test_who_is_refused_and_leaves_at_once_frees_no_place_twice() -> None:
    async def scene() -> None:
        turnstile = Turnstile(1, 2)
        async with turnstile.turn("first"):
            tasks = [asyncio.get_running_loop().create_task(turnstile._enter(owner)) for owner in "aa"]
            await asyncio.sleep(0)
            tasks.append(asyncio.get_running_loop().create_task(turnstile._enter("b")))
            tasks[1].cancel()
            await asyncio.sleep(0)
            tasks[1].cancel()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            assert (turnstile.waiting, turnstile._free) == (0, 0)
        assert turnstile._free == 1

    asyncio.run(scene())


def test_who_was_cancelled_in_the_same_moment_makes_room_first() -> None:
    """Its place is free, though it has not left yet: nobody is refused, neither who comes nor another who waits."""

    async def scene() -> None:
        turnstile = Turnstile(1, 3)
        async with turnstile.turn("first"):
            waiting = [asyncio.get_running_loop().create_task(turnstile._enter("a")) for _ in range(3)]
            await asyncio.sleep(0)
            for number in (2, 0):
                late = asyncio.get_running_loop().create_task(turnstile._enter("b"))
                waiting[number].cancel()  # it will leave after the other has come
                await asyncio.sleep(0)
                assert not late.done()
                waiting.append(late)
            assert (turnstile.waiting, waiting[1].done()) == (3, False)
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
            assert turnstile.waiting == 0

    asyncio.run(scene())


def test_who_gives_up_leaves_no_gap() -> None:
    async def scene() -> None:
        turnstile = Turnstile(1, 10)
        async with turnstile.turn("a"):
            waiter = asyncio.get_running_loop().create_task(turnstile._enter("b"))
            await asyncio.sleep(0)
            assert turnstile.waiting == 1
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            assert turnstile.waiting == 0
        async with asyncio.timeout(1), turnstile.turn("c"):
            assert turnstile.waiting == 0

    asyncio.run(scene())
