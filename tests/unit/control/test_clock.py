"""The machine's clock: waiting for a moment while somebody sets it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import anyio
import pytest

from atoll.control.clock import SystemClock
from atoll.model import limits

pytestmark = pytest.mark.anyio


class SetClock(SystemClock):
    """The machine's clock, and somebody who sets it."""

    offset = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.offset


async def test_a_wait_ends_when_the_clock_is_set_past_its_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLOCK_LOOK_S", 0.01)
    clock = SetClock()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(clock.wait_until, clock.now() + timedelta(hours=1), anyio.Event())
            await anyio.sleep(0.05)
            clock.offset = timedelta(hours=2)


async def test_how_far_it_was_set_is_known() -> None:
    clock = SetClock()
    assert abs(clock.jumped()) < timedelta(seconds=1)
    clock.offset = timedelta(hours=-3)
    assert abs(clock.jumped() + timedelta(hours=3)) < timedelta(seconds=1)
