"""What lasts is told of while it does; what is short is not."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from atoll.control.loops import forever
from atoll.control.underway import Underway
from atoll.model import limits

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def underway(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Underway]:
    monkeypatch.setattr(limits, "LASTING_S", 0.05)
    underway = Underway()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(forever, underway.step)
        yield underway
        tasks.cancel_scope.cancel()


async def test_what_lasts_is_told_of_once_and_what_is_short_never(underway: Underway) -> None:
    told: list[str] = []
    seen = anyio.Event()

    def tell() -> None:
        told.append("long")
        seen.set()

    long = underway.begin(tell)
    short = underway.begin(lambda: told.append("short"))
    underway.end(short)
    with anyio.fail_after(5):
        await seen.wait()
    assert (long.told, short.told, underway._untold) == (True, False, {})
    underway.end(long)
    later = anyio.Event()
    underway.begin(later.set)  # the loop has slept meanwhile, and is woken
    with anyio.fail_after(5):
        await later.wait()
    assert told == ["long"]
