"""The accept path of one sandbox's proxy."""

from __future__ import annotations

import asyncio
import socket
import time

import anyio
import pytest

from atoll.model import limits
from atoll.node.egress.buffer import Buffer, Waiting
from atoll.node.egress.dns_server import DnsServer
from atoll.node.egress.gate import Gate
from atoll.node.egress.judge import Bench
from atoll.node.egress.proxy import Proxy
from atoll.node.egress.resolver import Resolver

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_connections_without_end_are_taken_at_a_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is lost: what is not taken yet waits in the kernel. Here each is turned away, for nothing redirected it."""
    monkeypatch.setattr(limits, "EGRESS_TAKEN_AT_ONCE", 10)
    monkeypatch.setattr(limits, "EGRESS_TAKEN_PER_S", 50)
    gate, bench = Gate("sb1", lambda *_: None), Bench(Resolver(), ())

    def nobody(*_: object) -> None:
        raise AssertionError

    buffer = Buffer(memoryview(b""), Waiting())
    proxy = Proxy(gate, bench, DnsServer(gate, bench), nobody, nobody, buffer)  # type: ignore[arg-type]
    ends_s: list[float] = []

    async def knock(place: tuple[str, int]) -> None:
        with socket.socket() as sock:
            sock.setblocking(False)
            loop = asyncio.get_running_loop()
            try:
                await loop.sock_connect(sock, place)
                await loop.sock_recv(sock, 1)
            except ConnectionResetError:
                ends_s.append(time.monotonic())

    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        listener.setblocking(False)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(proxy.run, listener)
            began_s = time.monotonic()
            async with asyncio.timeout(10):
                async with anyio.create_task_group() as knocks:
                    for _ in range(30):
                        knocks.start_soon(knock, listener.getsockname())
            tasks.cancel_scope.cancel()
    assert len(ends_s) == 30
    assert ends_s[-1] - began_s >= 0.35, "twenty of them at fifty a second"
