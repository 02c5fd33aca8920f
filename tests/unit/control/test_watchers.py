"""Changes of folders, kept until somebody asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast

import anyio
import pytest

from atoll.control.guests import Guest
from atoll.control.watchers import Watchers
from atoll.model import limits
from atoll.model.errors import GuestFailed, Internal, LimitExceeded, NotFound
from atoll.wire import guest as wire

pytestmark = pytest.mark.anyio


WATCHING = wire.Event({"type": "watching", "path": "/w"})


class Inside:
    """A guest whose folder changes when the test says so."""

    def __init__(self, error: Exception | None = None, first: wire.Message = WATCHING) -> None:
        self.error = error
        self._first = first
        self.messages: asyncio.Queue[wire.Message | Exception] = asyncio.Queue()
        self.open = 0

    @asynccontextmanager
    async def stream(self, op: str, params: Any) -> AsyncIterator[Any]:
        if self.error is not None:
            raise self.error
        self.open += 1
        self.messages.put_nowait(self._first)
        try:
            # Closed here, not by the collector: what it says about a generator that it finds may be said in the middle
            # of a parse, and Python 3.11.7 does not survive a parse within a parse (SystemError in ast).
            async with aclosing(self._read()) as messages:
                yield messages
        finally:
            self.open -= 1

    async def _read(self) -> AsyncGenerator[wire.Message, None]:
        while True:
            message = await self.messages.get()
            if isinstance(message, Exception):
                raise message
            yield message

    @property
    def guest(self) -> Guest:
        return cast(Guest, self)


async def test_changes_wait_for_whoever_asks() -> None:
    inside = Inside()
    async with anyio.create_task_group() as tasks:
        watchers = Watchers(tasks)
        watcher = await watchers.create("sb1", inside.guest, {"path": "/w"}, "note")
        inside.messages.put_nowait(wire.Event({"type": "created", "path": "/w/a"}))
        await anyio.wait_all_tasks_blocked()
        seen = await watchers.take("sb1", watcher)
        assert (seen.root, seen.note, [change["path"] for change in seen.changes]) == ("/w", "note", ["/w/a"])
        assert (await watchers.take("sb1", watcher)).changes == []
        with pytest.raises(NotFound):
            await watchers.take("sb2", watcher)
        watchers.remove("sb1", watcher)
        with pytest.raises(NotFound):
            await watchers.take("sb1", watcher)
    assert inside.open == 0


async def test_what_is_wrong_with_the_folder_is_said_at_once() -> None:
    async with anyio.create_task_group() as tasks:
        inside = Inside(NotFound("no such folder", code="not_found"))
        with pytest.raises(NotFound, match="no such folder"):
            await Watchers(tasks).create("sb1", inside.guest, {"path": "/w"})


async def test_a_sandbox_that_says_twice_that_it_watches_ends_nothing() -> None:
    """The group is that of the whole server: what is raised in it stops all of it."""
    inside = Inside()
    async with anyio.create_task_group() as tasks:
        watchers = Watchers(tasks)
        watcher = await watchers.create("sb1", inside.guest, {"path": "/w"})
        inside.messages.put_nowait(wire.Event({"type": "watching", "path": {"not": "a path"}}))
        inside.messages.put_nowait(wire.Event({"type": ["created"], "path": "/w/a"}))
        inside.messages.put_nowait(WATCHING)
        await anyio.wait_all_tasks_blocked()
        seen = await watchers.take("sb1", watcher)
        assert (seen.root, seen.changes) == ("/w", [{"type": "", "path": "/w/a"}])
        watchers.remove("sb1", watcher)


async def test_a_sandbox_that_never_watches_is_told_at_once() -> None:
    async with anyio.create_task_group() as tasks:
        watchers = Watchers(tasks)
        with pytest.raises(GuestFailed):
            await watchers.create("sb1", Inside(first=wire.End({})).guest, {"path": "/w"})
        with pytest.raises(Internal):
            await watchers.create("sb1", Inside(ZeroDivisionError()).guest, {"path": "/w"})


async def test_a_watcher_whose_maker_leaves_ends() -> None:
    inside = Inside(first=wire.Event({"type": "created", "path": "/w/a"}))
    async with anyio.create_task_group() as tasks:
        watchers = Watchers(tasks)
        with anyio.move_on_after(0.05):
            await watchers.create("sb1", inside.guest, {"path": "/w"})
    assert inside.open == 0


async def test_a_watcher_that_nobody_asks_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WATCHER_IDLE_S_MAX", 0.05)
    inside = Inside()
    async with anyio.create_task_group() as tasks:
        watchers = Watchers(tasks)
        watcher = await watchers.create("sb1", inside.guest, {"path": "/w"})
    assert inside.open == 0
    with pytest.raises(NotFound):
        await watchers.take("sb1", watcher)


async def test_a_sandbox_has_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WATCHERS_PER_SANDBOX_MAX", 1)
    async with anyio.create_task_group() as tasks:
        watchers = Watchers(tasks)
        await watchers.create("sb1", Inside().guest, {"path": "/w"})
        with pytest.raises(LimitExceeded):
            await watchers.create("sb1", Inside().guest, {"path": "/w"})
        tasks.cancel_scope.cancel()


async def test_what_waits_is_bounded_and_the_newest_stays() -> None:
    inside = Inside()
    async with anyio.create_task_group() as tasks:
        watchers = Watchers(tasks)
        watcher = await watchers.create("sb1", inside.guest, {"path": "/w"})
        for number in range(2000):
            inside.messages.put_nowait(
                wire.Event({"type": "created", "path": f"/w/{number}" + "x" * 9000, "more": "y"})
            )
        await anyio.wait_all_tasks_blocked()
        seen = (await watchers.take("sb1", watcher)).changes
        assert sum(len(change["path"]) for change in seen) <= limits.WATCHER_CHANGES_BYTES_MAX
        assert seen[-1]["path"].startswith("/w/1999x")
        assert set(seen[0]) == {"type", "path"}
        watchers.remove("sb1", watcher)


LOST = GuestFailed("the sandbox ended the connection", code="guest_lost")


async def test_a_watcher_that_lost_its_sandbox_watches_again_when_it_is_asked() -> None:
    """As after a pause. What was seen before is still told, and that some of it may be missing."""
    inside = Inside()
    async with anyio.create_task_group() as tasks:
        watchers = Watchers(tasks)
        watcher = await watchers.create("sb1", inside.guest, {"path": "/w"})
        for message in (wire.Event({"type": "created", "path": "/w/a"}), LOST):
            inside.messages.put_nowait(message)
        await anyio.wait_all_tasks_blocked()
        assert inside.open == 0
        for _ in range(2):
            seen = await watchers.take("sb1", watcher)
            expected = [{"type": "created", "path": "/w/a"}, {"type": "overflow", "path": "/w"}]
            assert (inside.open, seen.changes) == (1, expected)
            inside.messages.put_nowait(wire.Event({"type": "created", "path": "/w/a"}))
            inside.messages.put_nowait(LOST)
            await anyio.wait_all_tasks_blocked()
        watchers.remove("sb1", watcher)


@pytest.mark.parametrize("error", [NotFound("no such folder"), ZeroDivisionError()])
async def test_a_watcher_that_cannot_watch_again_is_not_there(error: Exception) -> None:
    inside = Inside()
    async with anyio.create_task_group() as tasks:
        watchers = Watchers(tasks)
        watcher = await watchers.create("sb1", inside.guest, {"path": "/w"})
        inside.error = error
        inside.messages.put_nowait(LOST)
        await anyio.wait_all_tasks_blocked()
        for _ in range(2):
            with pytest.raises(NotFound) as caught:
                await watchers.take("sb1", watcher)
            assert caught.value.code == "watcher_not_found"
