"""Who gets what comes to life: the one who waits longest, else the shelf; and nothing is lost between the two."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from atoll.model import limits
from atoll.model.template import Template
from atoll.node.instance import Instance
from atoll.node.shelf import Shelf

pytestmark = pytest.mark.anyio


def shelf_with(coming: int) -> Shelf:
    return Shelf(Template("base", "key"), coming=coming)


ONE = cast(Instance, object())


async def waiter(shelf: Shelf) -> asyncio.Task[Instance | None]:
    task = asyncio.create_task(shelf.wait_coming())
    await asyncio.sleep(0)
    return task


def test_demand_is_forgotten_in_time() -> None:
    shelf = shelf_with(0)
    shelf.asked_at_s.extend([0.0, 1.0, limits.WARM_DEMAND_WINDOW_S])
    assert shelf.demand(limits.WARM_DEMAND_WINDOW_S) == 3
    assert shelf.demand(limits.WARM_DEMAND_WINDOW_S + 1.5) == 1


async def test_nobody_waits_for_what_does_not_come() -> None:
    assert await shelf_with(0).wait_coming() is None


async def test_without_anybody_waiting_it_goes_to_the_shelf() -> None:
    shelf = shelf_with(1)
    shelf.arrived(ONE)
    assert list(shelf.live) == [ONE]


async def test_only_as_many_wait_as_come() -> None:
    shelf = shelf_with(1)
    first = await waiter(shelf)
    assert await shelf.wait_coming() is None
    shelf.arrived(ONE)
    assert await first is ONE
    assert not shelf.live


async def test_who_waits_for_one_that_fails_is_told() -> None:
    shelf = shelf_with(1)
    first = await waiter(shelf)
    shelf.arrived(None)
    assert await first is None


async def test_what_was_promised_to_somebody_who_left_goes_to_the_shelf() -> None:
    shelf = shelf_with(1)
    first = await waiter(shelf)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert not shelf.awaited()
    shelf.arrived(ONE)
    assert list(shelf.live) == [ONE]


async def test_what_came_in_the_moment_in_which_its_owner_left_is_not_lost() -> None:
    shelf = shelf_with(1)
    first = await waiter(shelf)
    shelf.arrived(ONE)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert list(shelf.live) == [ONE]
