"""Requests of HTTP/1.1 that are looked at: what goes on of a head, and that a flood of chunks lets others work."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable
from ipaddress import IPv4Address

import anyio
import anyio.lowlevel
import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.model import limits
from atoll.model.policy import HttpRule, Policy, compile_policy
from atoll.node.egress.buffer import Buffer, Waiting
from atoll.node.egress.channel import Channel, Plain
from atoll.node.egress.gate import Flow, Gate
from atoll.node.egress.http1 import _judge, serve
from atoll.node.egress.requests import Site
from atoll.wire.network import NetworkOrder

ADDRESS = IPv4Address("198.51.100.7")
RULE = HttpRule("good.test", path_prefixes=("/pub",))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def no_connection() -> Awaitable[Channel]:
    raise AssertionError("nothing is dialled here")


SITE = Site("good.test", ADDRESS, 80, tls=False, connect=no_connection)


def new_buffer() -> Buffer:
    return Buffer(memoryview(bytearray(limits.EGRESS_CHUNK_BYTES)), Waiting())


def gate(*rules: HttpRule) -> Gate:
    made = Gate("sb1", lambda *_: None)
    made.apply(NetworkOrder(compile_policy(Policy(allow=("good.test",), http=rules), {})))
    return made


def judged(target: str, headers: list[tuple[str, str]], *rules: HttpRule) -> tuple[str, h11.Request | None]:
    request = h11.Request(method="GET", target=target, headers=[("Host", "good.test"), *headers])
    return _judge(gate(*rules), SITE, request)


@pytest.mark.parametrize(
    ("wanted", "free", "ruled"),
    [
        ("websocket", b"websocket", b"websocket"),
        ("WebSocket, h2c", b"WebSocket", b"WebSocket"),
        ("h2c", None, None),
        ("H2C-14", None, None),
        ("HTTP/2.0, TLS/1.2", None, None),
        ("SPDY/3.1", b"SPDY/3.1", None),
        ("", None, None),
    ],
)
def test_no_upgrade_leads_to_requests_that_nobody_judges(wanted: str, free: bytes | None, ruled: bytes | None) -> None:
    """What is said after an upgrade is not looked at, so it must not be HTTP again; with rules only a WebSocket."""
    asked = [("Upgrade", wanted), ("Connection", "Upgrade, HTTP2-Settings"), ("HTTP2-Settings", "AAMAAABk")]
    for rules, expected in (((), free), ((RULE,), ruled)):
        refusal, request = judged("/pub", asked, *rules)
        assert not refusal
        assert request is not None
        headers = dict(request.headers)
        assert headers.get(b"upgrade") == expected
        assert headers.get(b"connection") == (b"upgrade" if expected else None)
        assert b"http2-settings" not in headers


@pytest.mark.parametrize(
    ("target", "refusal", "on"),
    [
        ("http://good.test/pub/x?y", "", b"/pub/x?y"),
        ("http://good.test?y", "http_rule", b""),
        ("http://good.test/pub#x", "http_rule", b""),
        ("http://[", "host_mismatch", b""),
        ("http://", "host_mismatch", b""),
        ("http:///pub", "host_mismatch", b""),
        ("http://good.test@twin.test/pub", "host_mismatch", b""),
        ("http://twin.test/pub", "host_mismatch", b""),
        ("HTTP://good.test/pub", "bad_request", b""),
        ("ftp://good.test/pub", "bad_request", b""),
        ("/..;/private", "http_rule", b""),
    ],
)
def test_targets(target: str, refusal: str, on: bytes) -> None:
    said, request = judged(target, [], RULE)
    assert said == refusal
    assert (request.target if request else b"") == on


_TEXT = st.text(alphabet="ab/:.?#[]@%;\\ hcHCtTpPsSgod;0", max_size=20)
_FRAMING = ("Host", "Connection", "Upgrade", "TE", "Content-Length", "Transfer-Encoding", "Keep-Alive")
_NAMES = st.sampled_from([*_FRAMING, "X-A"])


@given(_TEXT, st.lists(st.tuples(_NAMES, _TEXT.map(str.strip)), max_size=5))
def test_any_head_is_refused_or_names_the_site_and_keeps_its_shape(target: str, headers: list[tuple[str, str]]) -> None:
    try:
        request = h11.Request(method="GET", target=target, headers=headers)
    except h11.LocalProtocolError:
        return
    refusal, on = _judge(gate(RULE), SITE, request)
    assert bool(refusal) is (on is None)
    if on is not None:
        assert bytes(on.target).startswith(b"/pub")
        assert {value for name, value in on.headers if name == b"host"} <= {b"good.test", b"good.test:80"}
        assert not {name for name, _ in on.headers} & {b"te", b"keep-alive", b"proxy-connection"}
        assert {value for name, value in on.headers if name == b"connection"} <= {b"upgrade"}


@pytest.mark.anyio
async def test_chunks_of_one_byte_leave_others_their_turn() -> None:
    """One read may be tens of thousands of them, and both ends are always ready."""
    client, inside = socket.socketpair()
    outside, server = socket.socketpair()
    for sock in (inside, outside):
        sock.setblocking(False)
    body = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 4000 + b"0\r\n\r\n"
    for sock in (client, inside, outside, server):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
    client.sendall(b"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n")
    server.sendall(body)
    client.shutdown(socket.SHUT_WR)
    turns = 0

    async def connect() -> Channel:
        return Plain(outside)

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        flow = Flow(ADDRESS, 80, tasks.cancel_scope, 0.0)
        site = Site("good.test", ADDRESS, 80, tls=False, connect=connect)
        await serve(gate(), flow, Plain(inside), site, new_buffer())
        tasks.cancel_scope.cancel()
    for sock in (client, inside, outside, server):
        sock.close()
    assert turns > 4000 // 64


@pytest.mark.anyio
@pytest.mark.parametrize("is_scarce", [True, False])
async def test_what_a_client_does_not_take_is_counted_and_is_little_where_little_is_left(
    is_scarce: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer without end to a client that is deaf; when it has gone, nothing of it is left."""
    if is_scarce:
        monkeypatch.setattr(limits, "EGRESS_WAITING_BYTES_MAX", 0)
    buffer = new_buffer()
    client, inside = socket.socketpair()
    outside, server = socket.socketpair()
    for sock in (inside, outside, server):
        sock.setblocking(False)
    client.sendall(b"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n")
    server.send(b"HTTP/1.1 200 OK\r\n\r\n")

    async def connect() -> Channel:
        return Plain(outside)

    async with anyio.create_task_group() as tasks:
        flow = Flow(ADDRESS, 80, tasks.cancel_scope, 0.0)
        site = Site("good.test", ADDRESS, 80, tls=False, connect=connect)
        tasks.start_soon(serve, gate(), flow, Plain(inside), site, buffer)
        still = 0
        while still < 5:
            try:
                still = 0 if server.send(bytes(limits.MIB)) else still
            except BlockingIOError:
                still += 1
            await anyio.sleep(0.005)
        waits = buffer.waiting_bytes
        tasks.cancel_scope.cancel()
    for sock in (client, inside, outside, server):
        sock.close()
    framing = 64
    assert 0 < waits <= (limits.EGRESS_PIECE_BYTES_MIN if is_scarce else limits.EGRESS_LOOK_BYTES) + framing
    assert is_scarce or waits > limits.EGRESS_PIECE_BYTES_MIN + framing
    assert buffer.waiting_bytes == 0


# --- rules that change while something is under way ---

GREET = b"GET /pub/x HTTP/1.1\r\nHost: good.test\r\n"
UPGRADE = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
SOCKET = GREET + b"Connection: Upgrade\r\nUpgrade: %s\r\n\r\n"
PUB, ELSE = HttpRule("good.test", path_prefixes=("/pub",)), HttpRule("good.test", path_prefixes=("/else",))
POSTS = HttpRule("good.test", methods=("POST",))
UNDER_WAY = {
    "a download": (GREET + b"\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbegun", PUB, ELSE),
    "an upload": (b"POST" + GREET[3:] + b"Content-Length: 9\r\n\r\nbegun", b"", POSTS, ELSE),
    "a websocket": (SOCKET % b"websocket" + b"early", UPGRADE + b"early", PUB, POSTS),
    "another protocol": (SOCKET % b"spdy/3" + b"early", UPGRADE.replace(b"websocket", b"spdy/3"), None, PUB),
    "nothing any more": (GREET + b"\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole", ELSE, None),
}


@pytest.mark.anyio
@pytest.mark.parametrize("kind", UNDER_WAY)
async def test_what_is_under_way_is_cut_by_a_rule_that_does_not_allow_it(kind: str) -> None:
    """And by none that does: that is the control."""
    said, answer, looser, tighter = UNDER_WAY[kind]
    held = gate()
    client, inside = socket.socketpair()
    outside, server = socket.socketpair()
    for sock in (client, inside, outside, server):
        sock.setblocking(False)
    loop = asyncio.get_running_loop()

    async def connect() -> Channel:
        return Plain(outside)

    async def heard(sock: socket.socket, last: bytes) -> bytes:
        data = b""
        async with asyncio.timeout(5):
            while not data.endswith(last):
                data += await loop.sock_recv(sock, 65536)
        return data

    def rule(one: HttpRule | None) -> None:
        rules = () if one is None else (one,)
        held.apply(NetworkOrder(compile_policy(Policy(allow=("good.test",), http=rules), {})))

    async def run() -> None:
        with flow.scope:
            site = Site("good.test", ADDRESS, 80, tls=False, connect=connect)
            await serve(held, flow, Plain(inside), site, new_buffer())

    async with anyio.create_task_group() as tasks:
        flow = Flow(ADDRESS, 80, anyio.CancelScope(), 0.0, name="good.test", proven=True, looked_inside=True)
        held.opened(flow)
        tasks.start_soon(run)
        client.send(said)
        heads = said.partition(b"\r\n\r\n")[2] or b"\r\n\r\n"
        await heard(server, b"\r\n\r\n" if kind in ("a websocket", "another protocol") else heads)
        if answer:
            server.send(answer)
            await heard(client, answer[-4:])
        if kind in ("a websocket", "another protocol"):
            assert await heard(server, b"early") == b"early", "what came with the request follows it"
        while kind == "nothing any more" and flow.underway:
            await anyio.sleep(0.001)
        rule(looser)
        assert not flow.scope.cancel_called
        if tighter is not None:
            rule(tighter)
            assert flow.cut_reason == "policy_changed"
            async with asyncio.timeout(1):
                assert await loop.sock_recv(server, 100) == b""
        tasks.cancel_scope.cancel()
    for sock in (client, inside, outside, server):
        sock.close()
