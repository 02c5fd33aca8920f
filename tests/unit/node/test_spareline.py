"""A connection made in advance: used once, and never when it is not one any more."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from atoll.node.spareline import SpareLine
from tests.waiting import wait_until


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


def test_it_is_taken_once(server: socket.socket) -> None:
    line = line_to(server.getsockname())
    assert line.take() is None
    line.renew()
    line.renew()
    with server.accept()[0], line.take() or pytest.fail("none") as connection:
        connection.setblocking(True)
        connection.sendall(b"x")
        assert line.take() is None


def test_one_that_the_guest_closed_is_not_used(server: socket.socket) -> None:
    line = line_to(server.getsockname())
    line.renew()
    server.accept()[0].close()
    wait_until(lambda: line._socket is None or line.take() is None, 5, "the end is seen")
    assert line.take() is None


def test_one_that_speaks_unasked_is_not_used(server: socket.socket) -> None:
    line = line_to(server.getsockname())
    line.renew()
    with server.accept()[0] as guest:
        guest.sendall(b"me first")
        wait_until(lambda: line._socket is None or line.take() is None, 5, "its words are seen")


def test_one_that_never_came_is_not_used(server: socket.socket) -> None:
    address = server.getsockname()
    server.close()
    line = line_to(address)
    line.renew()
    wait_until(lambda: line._socket is None or line.take() is None, 5, "the refusal is seen")


def test_without_a_way_there_is_none() -> None:
    line = SpareLine(None)
    line.renew()
    assert line.take() is None
    line.close()
