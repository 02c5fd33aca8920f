"""A clock that stands still until a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import anyio

START = datetime(2026, 1, 1, tzinfo=UTC)


class VirtualClock:
    """Virtual time: `advance` moves it and wakes whoever waited for a moment that has now come."""

    def __init__(self, now: datetime = START) -> None:
        self._now = now
        self._moved = anyio.Event()
        self._jumped = timedelta()

    def jumped(self) -> timedelta:
        return self._jumped

    async def jump(self, seconds: float) -> None:
        """Be set: the time is another one, and none has passed."""
        self._jumped += timedelta(seconds=seconds)
        await self.advance(seconds)

    def now(self) -> datetime:
        return self._now

    async def advance(self, seconds: float) -> None:
        """Move on, and let the tasks that this wakes run until they wait again."""
        self._now += timedelta(seconds=seconds)
        self._moved.set()
        self._moved = anyio.Event()
        await anyio.wait_all_tasks_blocked()

    async def wait_until(self, moment: datetime | None, changed: anyio.Event) -> None:
        begin = self._jumped
        while not changed.is_set() and (moment is None or moment > self._now) and self._jumped == begin:
            async with anyio.create_task_group() as tasks:
                for event in (self._moved, changed):
                    tasks.start_soon(_wait_then_cancel, event, tasks.cancel_scope)


async def _wait_then_cancel(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
