"""One connection of HTTP/2: how much of what a peer says is heard in one go, and what of it is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import anyio
import h2.config
import h2.connection
import pytest
import uvicorn
from hyperframe.frame import GoAwayFrame
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from atoll.api.http2.connection import Http2Connection
from atoll.model import limits
from tests import http2_acts

pytestmark = pytest.mark.anyio

CALM = 11  # ENHANCE_YOUR_CALM


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Wire(asyncio.Transport):
    """A transport that remembers what was written, and whether it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self._reads = True
        self._closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True

    def is_reading(self) -> bool:
        return self._reads

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True


class Stage:
    """A connection whose application reads whole bodies, and what a peer says on it."""

    def __init__(self) -> None:
        self.bodies: list[int] = []
        config = uvicorn.Config(self._app, interface="asgi3", lifespan="off", log_config=None, access_log=False)
        config.load()
        self.wire = Wire()
        self.connection = Http2Connection(config, ServerState(), {})
        self.connection.connection_made(self.wire)
        self.peer = h2.connection.H2Connection(h2.config.H2Configuration())
        self.peer.initiate_connection()
        self.connection.data_received(self.peer.data_to_send())

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = 0
        while (message := await receive())["type"] == "http.request":
            size += len(message["body"])
            if not message["more_body"]:
                break
        self.bodies.append(size)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def ask(self) -> int:
        stream = self.peer.get_next_available_stream_id()
        head = [(":method", "POST"), (":scheme", "https"), (":authority", "localhost"), (":path", "/")]
        self.peer.send_headers(stream, head)
        self.connection.data_received(self.peer.data_to_send())
        return stream

    def farewells(self) -> Iterator[int]:
        """The codes with which we hung up."""
        frames = memoryview(self.wire.written)
        while frames:
            size = 9 + int.from_bytes(frames[:3], "big")
            if frames[3] == GoAwayFrame.type:
                yield int.from_bytes(frames[13:17], "big")
            frames = frames[size:]


@pytest.fixture
async def stage() -> Stage:
    return Stage()


async def test_many_small_frames_in_one_read_let_others_have_their_turn(stage: Stage) -> None:
    """And nothing more is read before they were heard; none of them is lost."""
    stream, pieces, turns = stage.ask(), 5000, 0
    frames = http2_acts.frame(0, 0, stream, b"x") * pieces + http2_acts.frame(0, 1, stream)
    stage.connection.data_received(frames)
    assert not stage.wire.is_reading()
    with anyio.fail_after(10):
        while not stage.bodies:
            await asyncio.sleep(0)
            turns += 1
    assert stage.bodies == [pieces]
    assert stage.wire.is_reading()
    assert turns >= pieces // limits.INGRESS_EVENTS_IN_TURN


async def test_what_comes_meanwhile_is_heard_after_it(stage: Stage) -> None:
    """A transport may have some in hand when it is told to read no more."""
    stream = stage.ask()
    stage.connection.data_received(http2_acts.frame(0, 0, stream, b"x") * 1000)
    stage.connection.data_received(http2_acts.frame(0, 1, stream, b"end"))
    with anyio.fail_after(10):
        while not stage.bodies:
            await asyncio.sleep(0)
    assert stage.bodies == [1003]


async def test_a_peer_that_does_not_read_is_not_read_from_when_all_was_heard(stage: Stage) -> None:
    stream = stage.ask()
    stage.connection.pause_writing()
    stage.connection.data_received(http2_acts.frame(0, 0, stream, b"x") * 200)
    while stage.connection._next_turn is not None:
        await asyncio.sleep(0)
    assert not stage.wire.is_reading()
    stage.connection.resume_writing()
    assert stage.wire.is_reading()


async def test_settings_without_a_meaning_do_not_pile_up(stage: Stage) -> None:
    """The control is as many kinds as an honest peer may try."""
    stage.connection.data_received(http2_acts.settings((0x1000 + code, 1) for code in range(32)))
    assert not stage.wire.is_closing()
    stage.connection.data_received(b"".join(http2_acts.kinds()))
    assert stage.wire.is_closing()
    assert list(stage.farewells()) == [CALM]
    assert len(stage.connection._state.remote_settings) < 5000, "not more than one part brings"


async def test_what_is_remembered_of_ended_streams_is_bounded(stage: Stage) -> None:
    assert stage.connection._state._closed_streams._size_limit == limits.HTTP2_CLOSED_MAX  # type: ignore[attr-defined]


async def test_nothing_is_heard_after_the_end(stage: Stage) -> None:
    stream = stage.ask()
    stage.connection.data_received(http2_acts.frame(0, 0, stream, b"x") * 1000 + http2_acts.frame(0, 1, stream))
    stage.connection.connection_lost(None)
    assert stage.connection._next_turn is None
    with anyio.fail_after(10):
        while not stage.bodies:
            await asyncio.sleep(0)
    assert stage.bodies[0] < 1000
