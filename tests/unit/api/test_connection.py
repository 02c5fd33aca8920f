"""The HTTP server's side of one connection."""

from __future__ import annotations

import asyncio
import socket

import anyio
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from atoll.api.connection import ABORT, Connection

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_an_application_can_end_a_connection_whose_caller_does_not_read() -> None:
    """A close would wait until all that was written has been read."""
    told: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "http.request"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        with anyio.move_on_after(0.2):
            while True:
                await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})
        scope[ABORT]()
        told.append((await receive())["type"])

    config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False)
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Connection(config=config, server_state=state, app_state={}, claims=lambda _: False), "127.0.0.1", 0
    )
    with socket.create_connection(server.sockets[0].getsockname()) as caller:
        caller.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(5):
            while state.tasks or not told:
                await asyncio.sleep(0.01)
    server.close()
    assert told == ["http.disconnect"]
    assert not state.connections
