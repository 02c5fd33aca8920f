"""Loops that go on whatever they meet, and do not fill the log with it."""

from __future__ import annotations

import functools

import anyio
import pytest
import structlog

from atoll.control.loops import forever
from atoll.model import limits
from atoll.model.errors import Unavailable

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_background_loop_outlives_an_error_whatever_its_step_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step need not be a function with a name; one that was not ended the whole server with its first error."""
    monkeypatch.setattr(limits, "LOOP_RETRY_S", 0)
    rounds: list[int] = []
    again = anyio.Event()

    async def step(bound: int) -> None:
        rounds.append(bound)
        if len(rounds) == 1:
            raise Unavailable("the database does not answer", code="database_unavailable")
        again.set()
        await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(forever, functools.partial(step, 7))
        await again.wait()
        tasks.cancel_scope.cancel()
    assert rounds == [7, 7]


async def test_what_is_away_for_long_does_not_fill_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line when it goes, without a traceback, and one when something else is wrong; not one for each round."""
    monkeypatch.setattr(limits, "LOOP_RETRY_S", 0)
    rounds = 0
    done = anyio.Event()

    async def step() -> None:
        nonlocal rounds
        rounds += 1
        if rounds <= 100:
            raise Unavailable("the database does not answer", code="database_unavailable")
        if rounds <= 150:
            raise ZeroDivisionError
        done.set()
        await anyio.sleep_forever()

    with structlog.testing.capture_logs() as entries:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(forever, step)
            await done.wait()
            tasks.cancel_scope.cancel()
    assert [(one["event"], one["rounds"], "exc_info" in one) for one in entries] == [
        ("loop_waits", 1, False),
        ("loop_failed", 100, True),
    ]
