"""Bytes both ways between a caller's connection and a port, until both ends have ended."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

import anyio

from atoll.api.connection import RawConnection
from atoll.control.ingress import Ingress, Visit
from atoll.model import limits
from atoll.model.errors import AtollError

Way = Callable[[], Awaitable[None]]


async def join(caller: RawConnection, inside: socket.socket, visit: Visit, ingress: Ingress) -> None:
    """Pass bytes on and count them. The end of one direction is passed on, too; a break or a long silence ends both.

    What goes in wakes a sandbox from standby; if it may not wake, that is a break.
    """
    loop = asyncio.get_running_loop()
    last_s = loop.time()

    async def inward() -> None:
        nonlocal last_s
        while data := await caller.receive():
            last_s = loop.time()
            visit.bytes_in += len(data)
            if ingress.stands_still(visit):
                await ingress.wake(visit)
            await loop.sock_sendall(inside, data)
        with contextlib.suppress(OSError):
            inside.shutdown(socket.SHUT_WR)

    async def outward() -> None:
        nonlocal last_s
        while data := await loop.sock_recv(inside, limits.INGRESS_CHUNK_BYTES):
            last_s = loop.time()
            visit.bytes_out += len(data)
            await caller.send(data)
        caller.send_end()

    async def until_silent() -> None:
        while (left_s := last_s + limits.INGRESS_IDLE_S_MAX - loop.time()) > 0:  # noqa: ASYNC110
            await anyio.sleep(left_s)

    await _until_one_breaks(inward, outward, until_silent)


def hang_up(caller: RawConnection, visit: Visit) -> None:
    """Close the caller's connection; at once if the visit was cut, even if the caller has not read all."""
    if visit.scope.cancel_called:
        caller.abort()
    else:
        caller.close()


async def _until_one_breaks(inward: Way, outward: Way, silence: Way) -> None:
    async with anyio.create_task_group() as tasks:
        done: set[Way] = set()

        async def run(way: Way) -> None:
            try:
                await way()
                done.add(way)
            except (OSError, AtollError):
                tasks.cancel_scope.cancel()  # whoever broke it, there is nobody to tell
            if done >= {inward, outward} or silence in done:
                tasks.cancel_scope.cancel()

        for way in (inward, outward, silence):
            tasks.start_soon(run, way)
