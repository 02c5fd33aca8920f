"""The server inside, as one exchange over a socket."""

from __future__ import annotations

import asyncio
import socket

import anyio
import pytest

from atoll.api.ingress.upstream import Upstream
from atoll.model import limits

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_an_answer_in_tiny_pieces_leaves_others_their_turn() -> None:
    """Thousands of them come with one read, and nobody waits for anything in between."""
    pieces, turns = 10_000, 0
    near, far = socket.socketpair()
    with near, far:
        for sock in (near, far):
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.MIB)
        far.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * pieces + b"0\r\n\r\n")

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        upstream = Upstream(near)
        await upstream.send_head(b"GET", b"/", [(b"host", b"x")])
        await upstream.send_end()
        await upstream.receive_head()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            got = [data async for data in upstream.receive_body()]
            tasks.cancel_scope.cancel()
    assert b"".join(got) == b"x" * pieces
    assert turns >= pieces // limits.INGRESS_EVENTS_IN_TURN
