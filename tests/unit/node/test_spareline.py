"""A connection made in advance: used once, and never when it is not one any more."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator

import pytest

from atoll.node.spareline import SpareLine
from tests.waiting import wait_until

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def line_to(address: tuple[str, int]) -> SpareLine:
    def begin() -> socket.socket:
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex(address)
        return connection

    return SpareLine(begin)


def arrived(line: SpareLine) -> socket.socket:
    """The connection that waits, once there is something to hear on it."""
    connection = line._socket
    assert connection is not None
    wait_until(lambda: select.select([connection], [], [], 0)[0], 5, "it is heard")
    return connection


async def test_it_is_taken_once(server: socket.socket) -> None:
    line = line_to(server.getsockname())
    assert await line.take() is None
    line.renew()
    line.renew()
    with server.accept()[0], await line.take() or pytest.fail("none") as connection:
        connection.setblocking(True)
        connection.sendall(b"x")
        assert await line.take() is None


async def test_one_that_the_guest_closed_is_not_used(server: socket.socket) -> None:
    line = line_to(server.getsockname())
    line.renew()
    server.accept()[0].close()
    arrived(line)
    assert await line.take() is None


async def test_one_that_speaks_unasked_is_not_used(server: socket.socket) -> None:
    line = line_to(server.getsockname())
    line.renew()
    with server.accept()[0] as guest:
        guest.sendall(b"me first")
        arrived(line)
        assert await line.take() is None


async def test_one_that_never_came_is_not_used(server: socket.socket) -> None:
    address = server.getsockname()
    server.close()
    line = line_to(address)
    line.renew()
    assert await line.take() is None


async def test_one_that_stays_on_its_way_is_not_waited_for_long() -> None:
    """A server whose queue is full lets the next connection wait."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        with socket.create_connection(server.getsockname()):
            line = line_to(server.getsockname())
            line.renew()
            assert await line.take() is None


async def test_without_a_way_there_is_none() -> None:
    line = SpareLine(None)
    line.renew()
    assert await line.take() is None
    line.close()
