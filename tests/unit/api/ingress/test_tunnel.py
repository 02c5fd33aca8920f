"""Bytes both ways, while the sandbox behind them may fall asleep."""

from __future__ import annotations

import socket
from typing import Any, cast

import anyio
import pytest

from atoll.api.ingress import tunnel
from atoll.control.ingress import Admission, Knock, Visit
from atoll.model.errors import LimitExceeded
from atoll.model.port import PortAccess

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Caller:
    """One who sends some pieces, and then waits or leaves."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)
        self.got = b""

    async def receive(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    async def send(self, data: bytes) -> None:
        self.got += data

    def send_end(self) -> None:
        pass


class Doors:
    """Those of a sandbox that is in standby."""

    def __init__(self, *, may_wake: bool = True) -> None:
        self._asleep = True
        self._may_wake = may_wake
        self.woken = 0

    def stands_still(self, _visit: Visit) -> bool:
        return self._asleep

    async def wake(self, _visit: Visit) -> None:
        self.woken += 1
        if not self._may_wake:
            raise LimitExceeded("the budget is spent", code="budget_spent")
        self._asleep = False


async def joined(caller: Caller, doors: Doors) -> bytes:
    """What arrived inside, which answers in its last breath."""
    near, far = socket.socketpair()
    near.setblocking(False)
    visit = Visit(Admission(Knock("sb", 8000), "me", PortAccess(), "public"))
    with near, far:
        far.sendall(b"hello")
        far.shutdown(socket.SHUT_WR)
        with anyio.fail_after(5):
            await tunnel.join(cast(Any, caller), near, visit, cast(Any, doors))
        near.close()
        return far.recv(100)


async def test_what_goes_in_wakes_the_sandbox_once() -> None:
    caller, doors = Caller(b"a", b"b"), Doors()
    assert await joined(caller, doors) == b"ab"
    assert (doors.woken, caller.got) == (1, b"hello")


async def test_a_sandbox_that_may_not_wake_ends_the_connection() -> None:
    doors = Doors(may_wake=False)
    assert await joined(Caller(b"a", b"b"), doors) == b""
    assert doors.woken == 1
