"""A hostile guest: silent, endless, broken, too large. The node is unharmed and says what happened."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from atoll.api.v1 import filewords
from atoll.model import errors, limits
from atoll.node.guestlink import GuestLink, GuestStream
from atoll.wire import framing
from atoll.wire import guest as wire

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@contextmanager
def guest_that(act: Callable[[socket.socket], None]) -> Iterator[GuestLink]:
    """A link to a server that takes one connection, reads one request and does this."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                act(connection)

    async def connect() -> socket.socket:
        connection = socket.socket()
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, server.getsockname())
        return connection

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield GuestLink(connect, "token")
    finally:
        server.close()
        thread.join(5)


def flood(frame: bytes) -> Callable[[socket.socket], None]:
    def act(connection: socket.socket) -> None:
        while True:
            connection.sendall(frame)

    return act


async def read_all(stream: GuestStream) -> None:
    async for _ in stream:
        pass


async def test_a_reply() -> None:
    with guest_that(lambda connection: connection.sendall(wire.control({"ok": {"a": 1}}))) as link:
        assert await link.call("x") == {"a": 1}


async def test_an_error_becomes_ours() -> None:
    frame = wire.control({"error": {"code": "not_found", "message": "/x: no such file"}})
    with guest_that(lambda connection: connection.sendall(frame)) as link:
        with pytest.raises(errors.NotFound) as caught:
            await link.call("x")
    assert (caught.value.code, caught.value.message) == ("not_found", "/x: no such file")


async def test_an_error_that_it_made_up_does_not_pass_for_ours() -> None:
    frame = wire.control({"error": {"code": "internal_server_secret", "message": "m" * 5000}})
    with guest_that(lambda connection: connection.sendall(frame)) as link:
        with pytest.raises(errors.GuestFailed):
            await link.call("x")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage, not frames",
        b"\xff" * 64,
        framing.encode(0, b"{}"),
        framing.encode(3, b""),
        framing.encode(0, b"[" * 9999),
    ],
)
async def test_garbage(data: bytes) -> None:
    with guest_that(lambda connection: connection.sendall(data)) as link:
        with pytest.raises(errors.GuestFailed):
            await link.call("x", timeout_s=2)


async def test_silence_is_bounded() -> None:
    with guest_that(lambda connection: time.sleep(0.5)) as link:
        began = time.monotonic()
        with pytest.raises(errors.GuestFailed) as caught:
            await link.call("x", timeout_s=0.2)
        assert caught.value.code == "guest_timeout"
        assert time.monotonic() - began < 0.45


@pytest.mark.parametrize("op", sorted(wire.SILENT_OPS))
async def test_what_may_rightly_be_silent_is_waited_for(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that prints nothing, a folder in which nothing changes: their guest lives, which others look after."""
    monkeypatch.setattr(limits, "GUEST_IDLE_S_MAX", 0.05)

    def end_late(connection: socket.socket) -> None:
        time.sleep(0.2)
        connection.sendall(wire.control({"end": {"code": 0}}))

    with guest_that(end_late) as link:
        async with link.stream(op) as stream:
            assert await stream.receive() == wire.End({"code": 0})


async def test_what_has_work_to_do_may_not_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GUEST_IDLE_S_MAX", 0.05)
    with guest_that(lambda connection: time.sleep(0.2)) as link:
        async with link.stream("file.pack") as stream:
            with pytest.raises(errors.GuestFailed) as caught:
                await stream.receive()
    assert caught.value.code == "guest_timeout"


async def test_a_silent_stream_ends_when_its_guest_is_given_up() -> None:
    """Then nothing comes on its connection any more, not even its end."""
    with guest_that(lambda connection: time.sleep(0.3)) as link:
        async with link.stream("process.attach") as stream:
            asyncio.get_running_loop().call_later(0.05, link.hang_up)
            with pytest.raises(errors.GuestFailed) as caught:
                await stream.receive()
    assert caught.value.code == "guest_lost"


async def test_dripping_does_not_extend_the_time() -> None:
    def drip(connection: socket.socket) -> None:
        for byte in wire.control({"ok": {"a": "x" * 1000}}):
            connection.sendall(bytes([byte]))
            time.sleep(0.02)

    with guest_that(drip) as link:
        with pytest.raises(errors.GuestFailed) as caught:
            await link.call("x", timeout_s=0.2)
        assert caught.value.code == "guest_timeout"


async def test_an_event_knows_how_much_came_for_it() -> None:
    """So that whoever keeps many of them can count."""
    frame = wire.control({"event": {"entries": ["x" * 1000]}})
    with guest_that(lambda connection: connection.sendall(frame)) as link:
        async with link.stream("x") as stream:
            message = await stream.receive()
    assert isinstance(message, wire.Event)
    assert message.size_bytes == len(frame) - framing.HEADER.size


async def test_endless_lists_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they are read where they are asked for: few things that are large, and many that are small."""
    monkeypatch.setattr("atoll.model.limits.GUEST_LIST_BYTES_MAX", limits.MIB)
    with guest_that(flood(wire.control({"event": {"entries": ["x" * 10_000]}}))) as link:
        async with link.stream("x") as stream:
            with pytest.raises(errors.TooLarge) as caught:
                await filewords.collected(stream, str, 100_000)
    assert caught.value.code == "list_too_large"
    with guest_that(flood(wire.control({"event": {"entries": [{}] * 1000}}))) as link:
        async with link.stream("x") as stream:
            with pytest.raises(errors.GuestFailed):
                await filewords.collected(stream, str, 50_000)


async def test_endless_bytes_are_bounded() -> None:
    with guest_that(flood(framing.encode(framing.OUTPUT, bytes(100_000)))) as link:
        async with link.stream("x", bytes_max=limits.MIB) as stream:
            with pytest.raises(errors.TooLarge):
                await read_all(stream)


async def test_the_reason_is_heard_even_when_the_upload_breaks() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(limits.MIB)

    def refuse(connection: socket.socket) -> None:
        connection.sendall(wire.control({"error": {"code": "disk_full", "message": "full"}}))
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(0.3)
        with suppress(OSError):
            for _ in range(20):
                connection.recv(limits.MIB)

    with guest_that(refuse) as link:
        with pytest.raises(errors.AtollError) as caught:
            await link.upload("x", {}, endless())
    assert caught.value.code in ("disk_full", "guest_lost")


async def test_nobody_there() -> None:
    async def connect() -> socket.socket:
        raise ConnectionRefusedError

    with pytest.raises(errors.GuestFailed) as caught:
        await GuestLink(connect, "t").call("x")
    assert caught.value.code == "guest_unreachable"


async def test_too_much_to_ask() -> None:
    with guest_that(lambda connection: None) as link:
        with pytest.raises(errors.TooLarge):
            await link.call("x", {"a": "x" * (limits.FRAME_BYTES_MAX + 1)})
        with suppress(errors.GuestFailed):
            await link.call("x", timeout_s=1)
