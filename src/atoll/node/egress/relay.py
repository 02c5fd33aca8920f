"""Bytes from one channel to the other and back: as `passage`, where TLS of one side or both ends here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from atoll.node.egress.buffer import Buffer
from atoll.node.egress.channel import Channel
from atoll.node.egress.gate import Flow, Gate
from atoll.node.egress.passage import Idleness


async def relay(gate: Gate, flow: Flow, inside: Channel, outside: Channel, buffer: Buffer) -> None:
    """Move bytes both ways."""

    async def up() -> None:
        while data := await inside.receive(buffer.look_bytes):
            idleness.moved()
            with buffer.holding(len(data)):
                await gate.moved(flow, up=len(data))
                await outside.send(data)
        await outside.send_end()

    async def down() -> None:
        while data := await outside.receive(buffer.look_bytes):
            idleness.moved()
            with buffer.holding(len(data)):
                await gate.moved(flow, down=len(data))
                await inside.send(data)
        await inside.send_end()

    tasks = anyio.create_task_group()
    idleness = Idleness(tasks.cancel_scope.cancel)

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
        idleness.stop()
