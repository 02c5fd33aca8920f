"""One request on its way through a port: whom it waits for, and for how long."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from starlette.types import Message

from atoll.api.connection import ABORT
from atoll.api.errors import ClientGone
from atoll.api.ingress.gate import Passage
from atoll.api.ingress.routes import Target
from atoll.api.ingress.upstream import Upstream
from atoll.control.visits import Admission, Knock, Visit
from atoll.model import limits
from atoll.model.port import PortAccess

pytestmark = pytest.mark.anyio

STALL_S = 0.1
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRANSFER_STALL_S_MAX", STALL_S)
    monkeypatch.setattr(limits, "INGRESS_UPLOAD_PAUSE_S_MAX", STALL_S)


@dataclass
class Caller:
    """Says these pieces of a body and then nothing; reads so many messages of the answer and then none."""

    pieces: list[bytes]
    whole: bool = True
    reads: int = 1000
    heard: list[Message] = field(default_factory=list)
    aborted: bool = False

    async def receive(self) -> Message:
        if not self.pieces:
            await anyio.sleep_forever()
        body = self.pieces.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(self.pieces) or not self.whole}

    async def send(self, message: Message) -> None:
        if len(self.heard) >= self.reads:
            await anyio.sleep_forever()
        self.heard.append(message)

    def abort(self) -> None:
        self.aborted = True

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.heard)


@contextlib.asynccontextmanager
async def passing(caller: Caller) -> AsyncIterator[tuple[Passage, Upstream, socket.socket]]:
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    scope = {
        "method": "POST",
        "raw_path": b"/",
        "query_string": b"",
        "headers": [(b"host", b"x"), (b"content-length", b"4")],
        ABORT: caller.abort,
    }
    target = Target("sb1", 8000)
    visit = Visit(Admission(Knock("sb1", 8000), "me", PortAccess(), "public"))
    ingress: Any = SimpleNamespace(stands_still=lambda _: False)
    with near, far:
        yield Passage(scope, caller.receive, caller.send, target, "", visit, ingress), Upstream(near), far


async def test_a_caller_who_stops_in_the_middle_of_a_body_is_given_up() -> None:
    caller = Caller([b"ab"], whole=False)
    async with passing(caller) as (passage, upstream, _), asyncio.timeout(5):
        with pytest.raises(ClientGone):
            await passage.run(upstream)
    assert caller.aborted


async def test_a_caller_who_does_not_read_is_given_up() -> None:
    caller = Caller([b"abcd"], reads=1)
    async with passing(caller) as (passage, upstream, far), asyncio.timeout(5):
        far.send(HEAD + b"good")
        with pytest.raises(ClientGone):
            await passage.run(upstream)
    assert caller.aborted


async def test_a_server_inside_may_take_its_time() -> None:
    """Before it answers a whole request; and once it answers, for a request that is not whole."""
    for whole in (True, False):
        caller = Caller([b"abcd" if whole else b"ab"], whole=whole)
        async with passing(caller) as (passage, upstream, far), anyio.create_task_group() as tasks:
            if not whole:
                far.send(HEAD)
            tasks.start_soon(passage.run, upstream)
            await asyncio.sleep(STALL_S * 3)
            far.send(b"good" if not whole else HEAD + b"good")
        assert caller.body == b"good"
        assert not caller.aborted
