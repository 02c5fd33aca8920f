"""Bytes from one connection to the other and back, counted, until both have said all or nothing moves any more."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup

from atoll.model import limits
from atoll.node.egress.channel import Channel
from atoll.node.egress.gate import Flow, Gate

Look = Callable[[bytes], bool]


@dataclass
class _Movement:
    last_s: float


async def relay(gate: Gate, flow: Flow, inside: Channel, outside: Channel, look: Look | None = None) -> None:
    """Move bytes both ways. `look` sees the first bytes from inside and may object, which ends it all."""
    movement = _Movement(time.monotonic())

    async def up() -> None:
        first = look
        while data := await inside.receive():
            if first is not None and not first(data):
                flow.cut_reason = "late_hello"
                flow.scope.cancel()
                return
            first = None
            movement.last_s = time.monotonic()
            await gate.moved(flow, up=len(data))
            await outside.send(data)
        await outside.send_end()

    async def down() -> None:
        while data := await outside.receive():
            movement.last_s = time.monotonic()
            await gate.moved(flow, down=len(data))
            await inside.send(data)
        await inside.send_end()

    async def watch(tasks: TaskGroup) -> None:
        left_s = limits.EGRESS_IDLE_S_MAX
        while left_s > 0:  # asleep until the connection could have been idle for too long, and then again
            await anyio.sleep(left_s)
            left_s = movement.last_s + limits.EGRESS_IDLE_S_MAX - time.monotonic()
        tasks.cancel_scope.cancel()

    async def broken_ends(way: Callable[[], Awaitable[None]], tasks: TaskGroup) -> None:
        try:
            await way()
        except OSError:
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch, tasks)
        async with anyio.create_task_group() as both:
            both.start_soon(broken_ends, up, tasks)
            both.start_soon(broken_ends, down, tasks)
        tasks.cancel_scope.cancel()
