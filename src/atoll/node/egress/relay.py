"""Bytes from one connection to the other and back, counted, until both have said all or nothing moves any more.

It is what most connections consist of, so it is lean: one task beside the caller's, and a timer in place of a third.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio

from atoll.model import limits
from atoll.node.egress.channel import Channel
from atoll.node.egress.gate import Flow, Gate

Look = Callable[[bytes], bool]


class _Watch:
    """Calls when nothing has moved for too long. It wakes when that could be so, and not with every byte."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._call = call
        self._last_s = self._loop.time()
        self._timer = self._loop.call_later(limits.EGRESS_IDLE_S_MAX, self._look)

    def moved(self) -> None:
        self._last_s = self._loop.time()

    def stop(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        left_s = self._last_s + limits.EGRESS_IDLE_S_MAX - self._loop.time()
        if left_s <= 0:
            self._call()
        else:
            self._timer = self._loop.call_later(left_s, self._look)


async def relay(gate: Gate, flow: Flow, inside: Channel, outside: Channel, look: Look | None = None) -> None:
    """Move bytes both ways. `look` sees the first bytes from inside and may object, which ends it all."""

    async def up() -> None:
        first = look
        while data := await inside.receive():
            if first is not None and not first(data):
                flow.cut_reason = "late_hello"
                flow.scope.cancel()
                return
            first = None
            watch.moved()
            await gate.moved(flow, up=len(data))
            await outside.send(data)
        await outside.send_end()

    async def down() -> None:
        while data := await outside.receive():
            watch.moved()
            await gate.moved(flow, down=len(data))
            await inside.send(data)
        await inside.send_end()

    tasks = anyio.create_task_group()
    watch = _Watch(tasks.cancel_scope.cancel)

    async def broken_ends(way: Callable[[], Awaitable[None]]) -> None:
        try:
            await way()
        except OSError:
            tasks.cancel_scope.cancel()

    try:
        async with tasks:
            tasks.start_soon(broken_ends, down)
            await broken_ends(up)
    finally:
        watch.stop()
