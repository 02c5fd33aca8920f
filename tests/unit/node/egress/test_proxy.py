"""What the proxy lets on of connections that begin in a strange way, with real sockets and no sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import anyio
import pytest

from atoll.model import limits
from atoll.model.policy import HttpRule, Mode, Policy, compile_policy
from atoll.node.egress.buffer import Buffer, Waiting
from atoll.node.egress.ca import Authority
from atoll.node.egress.channel import Plain
from atoll.node.egress.dns_message import NO_ERROR, Answer
from atoll.node.egress.dns_server import DnsServer
from atoll.node.egress.gate import Flow, Gate
from atoll.node.egress.judge import Bench
from atoll.node.egress.proxy import Proxy
from atoll.node.egress.resolver import Resolver
from atoll.wire.network import NetworkOrder

pytestmark = pytest.mark.anyio

HERE = IPv4Address("127.0.0.1")
PAUSE_S = 0.12
GREETING = b"HELLO\r\n"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EGRESS_QUIET_S", PAUSE_S / 3)
    monkeypatch.setattr(limits, "EGRESS_HANDSHAKE_S_MAX", PAUSE_S * 2 / 3)


class Names(Resolver):
    """Knows one name, which leads here."""

    async def resolve(self, name: str) -> Answer:
        return Answer(NO_ERROR, False, (HERE,) if name == "good.test" else (), 60)


@dataclass
class Came:
    """What came of a connection."""

    heard: bytes
    answer: bytes
    flow: Flow


def never() -> Authority:
    raise AssertionError("no TLS is opened here")


def no_trust(_: bool) -> ssl.SSLContext:
    raise AssertionError("no TLS is opened here")


class Stage:
    """A server on this machine, and the proxy before it. The server answers what it hears, and may greet."""

    def __init__(self, greets: bool) -> None:
        self.heard = b""
        self.greets = greets
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.port: int = self.listener.getsockname()[1]
        self.gate = Gate("sb1", lambda *_: None)
        bench = Bench(Names(), (IPv4Network("127.0.0.0/8"),))
        buffer = Buffer(memoryview(bytearray(limits.EGRESS_CHUNK_BYTES)), Waiting())
        self.proxy = Proxy(self.gate, bench, DnsServer(self.gate, bench), never, no_trust, buffer)

    async def serve(self) -> None:
        """One connection after the other."""
        loop = asyncio.get_running_loop()
        while True:
            sock, _ = await loop.sock_accept(self.listener)
            with sock, contextlib.suppress(OSError):
                sock.setblocking(False)
                if self.greets:
                    await loop.sock_sendall(sock, GREETING)
                while data := await loop.sock_recv(sock, 65536):
                    self.heard += data
                    await loop.sock_sendall(sock, b"ok")

    async def say(self, *parts: bytes, after: Callable[[], None] | None = None, passes: bool = False) -> Came:
        """Say these with a pause between them, and hear until nothing comes any more; what passes gets its time."""
        client, inside = socket.socketpair()
        for sock in (client, inside):
            sock.setblocking(False)
        loop = asyncio.get_running_loop()
        flow = Flow(HERE, self.port, anyio.CancelScope(), time.monotonic(), in_judgement=True)
        answer = b""
        self.heard = b""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.serve)
            self.gate.opened(flow)
            tasks.start_soon(self.proxy._serve, flow, Plain(inside))
            with contextlib.suppress(OSError):
                for number, part in enumerate(parts):
                    if number:
                        await anyio.sleep(PAUSE_S)
                    await loop.sock_sendall(client, part)
                if after is not None:
                    while not answer:
                        answer += await loop.sock_recv(client, 65536)
                    after()
                with anyio.move_on_after(5 if passes else 0):
                    while self.heard != b"".join(parts):
                        await anyio.sleep(0.001)
                with anyio.move_on_after(PAUSE_S):
                    while data := await loop.sock_recv(client, 65536):
                        answer += data
            client.close()
            with anyio.move_on_after(PAUSE_S):
                while self.gate.flows:
                    await anyio.sleep(0.001)
            tasks.cancel_scope.cancel()
        return Came(self.heard, answer, flow)

    def order(self, *allow: str, **fields: Any) -> None:
        """Another policy from now on."""
        rules = tuple(rule.replace("PORT", str(self.port)) for rule in allow)
        self.gate.apply(NetworkOrder(compile_policy(Policy(allow=rules, **fields), {})))


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage(greets=False)
    made.gate.pins.add("good.test", (HERE,))
    with made.listener:
        yield made


def hello(name: str) -> bytes:
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


TWIN = hello("twin.test")
GROWN = b"\x16\x03\x01\x40\0\x01\0\x4e\x20" + TWIN[9:] + bytes(20_000)
HOST = b" /x HTTP/1.1\r\nHost: twin.test\r\n\r\n"
TRICKS: dict[str, tuple[bytes, ...]] = {
    "an empty line": (b"\r\nGET" + HOST,),
    "tabs": (b"GET\t/x\tHTTP/1.1\r\nHost: twin.test\r\n\r\n",),
    "an old preface in two": (b"PRI ", b"* HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "a method that nobody knows": (b"PURGE", HOST),
    "a version in two": (b"PURGE /x HT", b"TP/1.1\r\nHost: twin.test\r\n\r\n"),
    "a request in two": (b"G", b"ET" + HOST),
    "a hello in two": (TWIN[:1], TWIN[1:]),
    "a hello in two, later": (TWIN[:40], TWIN[40:]),
    "an empty record": (b"\x16\x03\x01\0\0" + TWIN,),
    "an alert": (b"\x15\x03\x01\0\x02\1\0" + TWIN,),
    "a long hello": (GROWN,),
    "a hello in crumbs": (b"".join(b"\x16\x03\x01\0\1" + TWIN[at : at + 1] for at in range(5, len(TWIN))),),
    "a line without end": (b"PURGE /" + b"x" * limits.HELLO_BYTES_MAX, HOST),
}


@pytest.mark.parametrize("trick", TRICKS)
async def test_no_way_to_begin_hides_a_name(stage: Stage, trick: str) -> None:
    """On a port where anything may be spoken. The control: where no name matters, all of it arrives."""
    parts = TRICKS[trick]
    stage.order("good.test:PORT")
    assert (await stage.say(*parts)).heard != b"".join(parts)
    stage.order("127.0.0.1:PORT", deny=("evil.test",))
    if TWIN[5:] not in b"".join(parts) or len(parts) == 1:
        assert (await stage.say(*parts)).heard != b"".join(parts)


@pytest.mark.parametrize("trick", [name for name, parts in TRICKS.items() if len(parts) == 1])
async def test_where_no_name_matters_it_passes(stage: Stage, trick: str) -> None:
    stage.order("127.0.0.1:PORT")
    assert (await stage.say(*TRICKS[trick], passes=True)).heard == b"".join(TRICKS[trick])


@pytest.mark.parametrize(
    "parts",
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", b"\0\0\1"),
        (b"SSH-2.0-OpenSSH_9.6", b"\r\n"),
        (b"JDWP-Handshake", b"\0\0\0\x0b"),
        (b"\0\0\0\x08\x04\xd2\x16\x2f", TWIN),  # Postgres, which goes on in TLS
        (b"*1\r\n$4\r\nPING\r\n",),
        (b"0032git-upload-pack /project.git\0host=good.test\0",),
        (b"l", b"s", b"\r\n"),
    ],
)
@pytest.mark.parametrize("greets", [False, True])
async def test_other_protocols_go_on(stage: Stage, greets: bool, parts: tuple[bytes, ...]) -> None:
    stage.greets = greets
    stage.order("good.test:PORT")
    came = await stage.say(*((b"",) if greets else ()), *parts, passes=True)
    assert came.heard == b"".join(parts)
    assert came.answer.startswith(GREETING if greets else b"ok")
    assert came.flow.name == "good.test"


@pytest.mark.parametrize(
    "parts", [(b"GET" + HOST,), (b"PURGE", HOST), (b"G", b"ET" + HOST), (TWIN,), (TWIN[:9], TWIN[9:])]
)
async def test_nor_after_the_server_has_spoken(stage: Stage, parts: tuple[bytes, ...]) -> None:
    stage.greets = True
    stage.order("good.test:PORT")
    came = await stage.say(b"", *parts)
    assert came.heard != b"".join(parts)
    assert came.flow.cut_reason == "late_hello"


# --- names that are only claimed ---


async def test_what_a_rule_puts_into_requests_goes_to_its_host_only(stage: Stage) -> None:
    """Where any address is allowed, a Host is what the sandbox says. The control: the name that leads there."""
    rules = [HttpRule(name, set_headers={"X-Key": "canary"}) for name in ("good.test", "api.test")]
    stage.order("127.0.0.1:PORT", http=tuple(rules))
    ask = "GET /x HTTP/1.1\r\nHost: {}:" + f"{stage.port}\r\n\r\n"
    came = await stage.say(ask.format("api.test").encode())
    assert came.heard == b""
    assert b"name_mismatch" in came.answer
    assert b"canary" in (await stage.say(ask.format("good.test").encode())).heard
    assert (await stage.say(ask.format("free.test").encode())).heard


def http(stage: Stage, name: str) -> bytes:
    return f"GET /x HTTP/1.1\r\nHost: {name}:{stage.port}\r\n\r\n".encode()


async def test_a_tighter_policy_does_not_believe_what_was_only_said(stage: Stage) -> None:
    """In TLS that is passed on the name is the client's word. The control: one that the sandbox was told."""
    for name, reason in (("good.test", ""), ("api.test", "policy_changed")):
        stage.order("127.0.0.1:PORT", mode=Mode.PUBLIC)
        came = await stage.say(hello(name), after=lambda name=name: stage.order(f"{name}:PORT"))  # type: ignore[misc]
        assert came.flow.name == name
        assert came.flow.cut_reason == reason


async def test_requests_in_a_raw_passage_are_cut_when_they_must_be_judged(stage: Stage) -> None:
    def after(**fields: Any) -> Callable[[], None]:
        return lambda: stage.order("127.0.0.1:PORT", **fields)

    for fields, reason in (
        ({}, ""),
        ({"deny": ("192.0.2.1",)}, ""),
        ({"deny": ("evil.test",)}, "policy_changed"),
        ({"http": (HttpRule("api.test"),)}, "policy_changed"),
        ({"inspect": True}, "policy_changed"),
    ):
        stage.order("127.0.0.1:PORT")
        came = await stage.say(http(stage, "good.test"), after=after(**fields), passes=True)
        assert came.heard == http(stage, "good.test"), "it was passed on as it is"
        assert came.flow.cut_reason == reason, fields


NOT_HTTP = [
    (b"SSH-2.0-OpenSSH_9.6\r\n", b"\0\0\1"),
    (b"", b"SSH-2.0-OpenSSH_9.6\r\n"),
    (b"l", b"s", b"\r\n"),
    (b"", b""),
]


@pytest.mark.parametrize("parts", NOT_HTTP)
@pytest.mark.parametrize("greets", [False, True])
async def test_where_rules_are_for_requests_nothing_else_passes(
    stage: Stage, greets: bool, parts: tuple[bytes, ...]
) -> None:
    """Neither the server's greeting. The controls: a host without such rules, and a request, also one that is late."""
    stage.greets = greets
    stage.order("good.test:PORT", http=(HttpRule("good.test"),))
    came = await stage.say(*parts)
    assert (came.heard, came.answer) == (b"", b"")
    assert (came.flow.verdict.allowed, came.flow.verdict.reason) == (False, "not_http")
    assert (await stage.say(http(stage, "good.test"))).heard
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "EGRESS_HANDSHAKE_S_MAX", PAUSE_S * 4)
        assert (await stage.say(b"", http(stage, "good.test"))).heard, "later than others would have been passed on"
    stage.order("good.test:PORT", http=(HttpRule("other.test"),))
    came = await stage.say(*parts, passes=True)
    assert came.heard == b"".join(parts)
    assert came.answer or not (greets or came.heard)


async def test_what_passes_and_is_no_request_is_cut_when_rules_are_for_requests(stage: Stage) -> None:
    for rule, reason in ((HttpRule("other.test"), ""), (HttpRule("good.test"), "policy_changed")):
        stage.order("good.test:PORT")

        def after(rule: HttpRule = rule) -> None:
            stage.order("good.test:PORT", http=(rule,))

        came = await stage.say(b"SSH-2.0-OpenSSH_9.6\r\n", after=after, passes=True)
        assert came.flow.cut_reason == reason


async def test_a_neighbour_at_the_same_address_needs_to_make_no_requests(stage: Stage) -> None:
    stage.gate.pins.add("free.test", (HERE,))
    stage.order("good.test:PORT", "free.test:PORT", http=(HttpRule("good.test"),))
    came = await stage.say(b"SSH-2.0-OpenSSH_9.6\r\n", passes=True)
    assert (came.heard, came.flow.name) == (b"SSH-2.0-OpenSSH_9.6\r\n", "free.test")


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
