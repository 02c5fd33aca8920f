"""The DNS server of one sandbox: what it does for whoever asks without end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from ipaddress import IPv4Address
from types import SimpleNamespace

import anyio
import pytest

from atoll.model import limits
from atoll.model.policy import Policy, compile_policy
from atoll.node.egress import dns_server
from atoll.node.egress.channel import Plain
from atoll.node.egress.dns_message import NO_ERROR, REFUSED, Answer, build_query
from atoll.node.egress.dns_server import DnsServer
from atoll.node.egress.gate import Flow, Gate
from atoll.node.egress.judge import Bench
from atoll.node.egress.resolver import Resolver
from atoll.wire.network import NetworkEvent, NetworkOrder

pytestmark = pytest.mark.anyio

QUESTION = build_query(7, "anything.test")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def server() -> DnsServer:
    """Of a sandbox that may reach nothing: every name is refused, and nobody is asked."""
    return DnsServer(Gate("sb1", lambda *_: None), Bench(Resolver(), ()))


@pytest.fixture
def asking() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a wire for datagrams: who asks, and who answers."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as near,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as far,
    ):
        for sock in (near, far):
            sock.bind(("127.0.0.1", 0))
            sock.setblocking(False)
        near.connect(far.getsockname())
        yield near, far


async def heard(sock: socket.socket) -> bytes:
    async with asyncio.timeout(5):
        return await asyncio.get_running_loop().sock_recv(sock, 4096)


async def test_connections_with_questions_are_bounded_and_their_places_come_back(
    server: DnsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DNS_CONNECTIONS_MAX", 2)

    def connect(tasks: anyio.abc.TaskGroup) -> socket.socket:
        client, inside = socket.socketpair()
        client.setblocking(False)
        inside.setblocking(False)
        server.take_tcp(Plain(inside), tasks)
        return client

    async with anyio.create_task_group() as tasks:
        first, second, third = (connect(tasks) for _ in range(3))
        assert await heard(third) == b"", "hung up on at once"
        first.send(len(QUESTION).to_bytes(2) + QUESTION)
        assert (await heard(first))[5] & 15 == REFUSED
        first.close()
        async with asyncio.timeout(5):
            while server._connections > 1:
                await asyncio.sleep(0)
        fourth = connect(tasks)
        fourth.send(len(QUESTION).to_bytes(2) + QUESTION)
        assert (await heard(fourth))[5] & 15 == REFUSED
        tasks.cancel_scope.cancel()
    for sock in (second, third, fourth):
        sock.close()
    assert server._connections == 0


async def test_datagrams_beyond_the_rate_are_not_even_read(
    server: DnsServer, asking: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DNS_QUERIES_PER_S", 3)
    clock_s = 1000.95  # so that what waits for the next second waits a moment only
    monkeypatch.setattr(dns_server, "time", SimpleNamespace(monotonic=lambda: clock_s))
    near, far = asking
    read = 0
    take = server._take

    def taken(*arguments: object) -> None:
        nonlocal read
        read += 1
        take(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(server, "_take", taken)
    for _ in range(100):
        near.send(QUESTION)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.run, far)
        answers = [await heard(near) for _ in range(3)]
        assert {answer[3] & 15 for answer in answers} == {REFUSED}
        assert far.recv(1, socket.MSG_PEEK), "the rest waits in the kernel"
        assert read == 1
        async with asyncio.timeout(5):
            while is_readable(far):
                await asyncio.sleep(0.01)
        clock_s = 1001.0
        near.send(QUESTION)
        assert (await heard(near))[3] & 15 == REFUSED, "whoever asks in the next second is not behind the flood"
        with contextlib.suppress(BlockingIOError):
            assert not near.recv(1)
        tasks.cancel_scope.cancel()


class Known(Resolver):
    """Knows every name, without asking anybody."""

    async def resolve(self, name: str) -> Answer:
        return Answer(NO_ERROR, False, (IPv4Address("9.9.9.9"),), 60)


async def test_questions_count_as_bytes_and_are_refused_when_those_are_spent() -> None:
    """Also where no connection was ever made: a name can carry what is to get out. A refused one goes nowhere."""
    told: list[NetworkEvent] = []
    gate = Gate("sb1", lambda _, event: told.append(event))
    server = DnsServer(gate, Bench(Known(), ()))
    gate.apply(NetworkOrder(compile_policy(Policy(allow=("*.open.test",), bytes_max=200), {})))
    assert (await server._answer(build_query(7, "other.test")))[3] & 15 == REFUSED
    assert gate.traffic.total == 0
    question = build_query(7, "a.open.test")
    moved = 0
    while gate.traffic.total < 200:
        answer = await server._answer(question)
        moved += len(question) + len(answer)
        assert answer[3] & 15 == NO_ERROR
        assert gate.traffic.total == moved
    assert (await server._answer(question))[3] & 15 == REFUSED
    assert gate.traffic.total == moved
    assert (told[-1].kind, told[-1].name, told[-1].reason) == ("lookup", "a.open.test", "bytes_cap")


async def test_the_last_question_that_may_be_asked_ends_what_is_open_and_others_wait_for_its_bytes() -> None:
    gate = Gate("sb1", lambda *_: None)
    server = DnsServer(gate, Bench(Known(), ()))
    policy = Policy(allow=("*.open.test",), bytes_max=100_000, rate_bytes_per_s=1024)
    gate.apply(NetworkOrder(compile_policy(policy, {})))
    flow = Flow(IPv4Address("9.9.9.9"), 443, anyio.CancelScope(), 0.0)
    gate.opened(flow)
    for _ in range(100):
        await server._answer(build_query(7, "a.open.test"))
    assert gate.count(flow, up=1) > 1
    assert flow.cut_reason == ""
    gate.traffic.add(up=99_990 - gate.traffic.total, down=0)
    await server._answer(build_query(7, "a.open.test"))
    assert flow.cut_reason == "bytes_cap"


def is_readable(sock: socket.socket) -> bool:
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False
