"""The guest's door: who may ask, and what happens to those who do not keep the protocol."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any

import pytest

from atoll.model import errors, limits
from atoll.node.guestlink import GuestLink
from atoll.wire import framing
from atoll.wire import guest as wire

pytestmark = pytest.mark.anyio


async def test_it_answers(link: GuestLink) -> None:
    assert await link.call("ping") == {}
    assert (await link.call("info"))["pid"] > 0


async def test_a_wrong_token_gets_nothing(guest: Any) -> None:
    with pytest.raises(errors.GuestFailed) as caught:
        await GuestLink(guest.connect, "wrong").call("ping")
    assert "unauthenticated" in caught.value.detail


async def test_an_unknown_operation(link: GuestLink) -> None:
    with pytest.raises(errors.GuestFailed) as caught:
        await link.call("no.such")
    assert "unknown_op" in caught.value.detail
    with pytest.raises(errors.GuestFailed):
        await link.call("file.no_such")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 100,
        framing.encode(framing.CONTROL, b"[]"),
        framing.encode(framing.CONTROL, b"{"),
        framing.encode(framing.INPUT, b"x"),
        wire.control({"op": 7, "token": []}),
        bytes(range(64)),
    ],
)
async def test_garbage_does_not_harm_it(guest: Any, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", guest.port), timeout=10) as connection:
        with suppress(OSError):  # it may hang up on us before we are done
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass
    assert await guest.link.call("ping") == {}


async def test_silent_connections_do_not_take_its_place(guest: Any) -> None:
    silent = [socket.create_connection(("127.0.0.1", guest.port)) for _ in range(100)]
    try:
        assert await guest.link.call("ping") == {}
    finally:
        for connection in silent:
            connection.close()


async def ping_often(link: GuestLink) -> None:
    for _ in range(50):
        await link.call("ping")


async def test_one_too_many_is_told_so_and_the_guest_recovers(guest: Any) -> None:
    silent = [socket.create_connection(("127.0.0.1", guest.port)) for _ in range(limits.CONNECTIONS_MAX - 1)]
    try:
        with pytest.raises(errors.LimitExceeded) as caught:
            await ping_often(guest.link)  # until the last of them has its thread
        assert caught.value.code == "busy"
    finally:
        for connection in silent:
            connection.close()
    for _ in range(100):
        with suppress(errors.LimitExceeded):
            assert await guest.link.call("ping") == {}
            return
        await asyncio.sleep(0.02)
    raise AssertionError("still busy")
