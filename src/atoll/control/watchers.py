"""Watchers: changes of folders inside sandboxes, kept until somebody asks for them.

For callers who poll. A watcher that nobody asks ends by itself. One that lost its sandbox, which was paused perhaps,
watches again when somebody asks the next time: what was missed is told as an overflow, and where it cannot watch any
more, there is no such watcher.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.abc
import structlog

from atoll.control.guests import Guest
from atoll.model import limits
from atoll.model.errors import AtollError, GuestFailed, Internal, LimitExceeded, NotFound
from atoll.wire import guest as wire

log = structlog.get_logger(__name__)


class _Watcher:
    def __init__(self, sandbox_id: str, note: Any) -> None:
        self.sandbox_id = sandbox_id
        self.note = note
        self.scope = anyio.CancelScope()
        self.begun = anyio.Event()
        self.again = anyio.Event()
        self.failure: AtollError | None = _silent()
        """Why it does not watch, when `begun` is set; what it is until the sandbox has said that it does."""
        self.changes: deque[dict[str, Any]] = deque()
        self.asked_s = time.monotonic()
        self.root = ""
        self._bytes = 0

    def begin(self, value: dict[str, Any]) -> None:
        if self.begun.is_set():
            return
        self.root = _text(value, "path")[: limits.PATH_BYTES_MAX]
        self.failure = None
        self.begun.set()

    def lose(self) -> None:
        """The sandbox was lost from sight: until somebody asks, nothing is watched."""
        self.begun, self.again, self.failure = anyio.Event(), anyio.Event(), _silent()
        self.add({"type": "overflow", "path": self.root})

    def add(self, value: dict[str, Any]) -> None:
        """Keep of a change what is of use, and no more of all of them than the bound: a guest may say anything."""
        change = {name: _text(value, name)[: limits.PATH_BYTES_MAX * 2] for name in ("type", "path")}
        self.changes.append(change)
        self._bytes += _size_bytes(change)
        while self._bytes > limits.WATCHER_CHANGES_BYTES_MAX:
            self._bytes -= _size_bytes(self.changes.popleft())

    def take(self) -> list[dict[str, Any]]:
        taken = list(self.changes)
        self.changes.clear()
        self._bytes = 0
        return taken


def _silent() -> GuestFailed:
    return GuestFailed("the sandbox does not watch", code="guest_garbage")


def _text(value: dict[str, Any], name: str) -> str:
    text = value.get(name)
    return text if isinstance(text, str) else ""


def _size_bytes(change: dict[str, Any]) -> int:
    return limits.WATCHER_CHANGE_BYTES + sum(map(len, change.values()))


@dataclass(frozen=True, slots=True)
class Seen:
    """Changes below a folder, and what the watcher's maker wanted to remember."""

    root: str
    changes: list[dict[str, Any]]
    note: Any


class Watchers:
    """All watchers of a server; their tasks live in the group that is given."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self._tasks = tasks
        self._known: dict[str, _Watcher] = {}

    async def create(self, sandbox_id: str, inside: Guest, params: Mapping[str, Any], note: Any = None) -> str:
        """Watch a folder from now on; the watcher's id. What is wrong with the folder is raised here."""
        count = sum(watcher.sandbox_id == sandbox_id for watcher in self._known.values())
        if count >= limits.WATCHERS_PER_SANDBOX_MAX:
            raise LimitExceeded("the sandbox has too many watchers", code="too_many_watchers")
        watcher_id = secrets.token_hex(8)
        watcher = self._known[watcher_id] = _Watcher(sandbox_id, note)
        self._tasks.start_soon(self._live, watcher_id, watcher, inside, params)
        try:
            await watcher.begun.wait()
        except BaseException:
            watcher.scope.cancel()  # its maker is gone and knows no name for it
            raise
        if watcher.failure is not None:
            raise watcher.failure
        return watcher_id

    async def take(self, sandbox_id: str, watcher_id: str) -> Seen:
        """The changes since the last time, in their order. The sandbox runs: one that was lost is watched again."""
        watcher = self._find(sandbox_id, watcher_id)
        watcher.asked_s = time.monotonic()
        watcher.again.set()
        await watcher.begun.wait()
        if watcher.failure is not None:
            raise _unknown(watcher_id) from watcher.failure
        return Seen(watcher.root, watcher.take(), watcher.note)

    def remove(self, sandbox_id: str, watcher_id: str) -> None:
        self._find(sandbox_id, watcher_id).scope.cancel()
        del self._known[watcher_id]

    def _find(self, sandbox_id: str, watcher_id: str) -> _Watcher:
        watcher = self._known.get(watcher_id)
        if watcher is None or watcher.sandbox_id != sandbox_id:
            raise _unknown(watcher_id)
        return watcher

    async def _live(self, watcher_id: str, watcher: _Watcher, inside: Guest, params: Mapping[str, Any]) -> None:
        """The life of one watcher, until it is removed or nobody has asked it for long.

        The group is that of the whole server: whatever a guest may say, nothing of it is raised there.
        """
        try:
            with watcher.scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_expire, watcher)
                    while await _watch(watcher, inside, params):
                        watcher.lose()
                        await watcher.again.wait()
                    await anyio.sleep_forever()  # what was seen can still be asked for
        except Exception as error:
            log.exception("watcher_failed", sandbox_id=watcher.sandbox_id)
            watcher.failure = Internal("the folder is not watched", detail=repr(error))
        finally:
            self._known.pop(watcher_id, None)
            watcher.begun.set()


async def _watch(watcher: _Watcher, inside: Guest, params: Mapping[str, Any]) -> bool:
    """Until the folder is gone, or the sandbox: then it is True. The watcher ends if the sandbox never watched."""
    lost = False
    try:
        async with inside.stream("file.watch", params) as stream:
            async for message in stream:
                if not isinstance(message, wire.Event):
                    break
                if message.value.get("type") == "watching":
                    watcher.begin(message.value)
                else:
                    watcher.add(message.value)
    except AtollError as error:
        lost = watcher.begun.is_set()
        if not lost:
            watcher.failure = error
    if not watcher.begun.is_set():
        watcher.scope.cancel()
    return lost


def _unknown(watcher_id: str) -> NotFound:
    return NotFound(f"there is no watcher {watcher_id[:40]!r}", code="watcher_not_found")


async def _expire(watcher: _Watcher) -> None:
    # What is waited for is that nothing happens.
    while (left_s := watcher.asked_s + limits.WATCHER_IDLE_S_MAX - time.monotonic()) > 0:  # noqa: ASYNC110
        await anyio.sleep(left_s)
    watcher.scope.cancel()
