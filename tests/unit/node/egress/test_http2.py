"""What one HTTP/2 connection that is looked at may hold in memory, whatever either end does with its streams."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

import anyio
import h2.config
import h2.connection
import h2.events
import h2.exceptions
import pytest
from hyperframe.frame import DataFrame, SettingsFrame

from atoll.model import limits
from atoll.model.policy import HttpRule, Policy, compile_policy
from atoll.node.egress.buffer import Buffer, Waiting
from atoll.node.egress.channel import Plain
from atoll.node.egress.gate import Flow, Gate
from atoll.node.egress.http2 import _Bridge, _Side
from atoll.node.egress.passage import Idleness
from atoll.node.egress.requests import Site
from atoll.wire.network import NetworkOrder

pytestmark = pytest.mark.anyio

ADDRESS = IPv4Address("198.51.100.7")
HEAD = [(b":method", b"GET"), (b":path", b"/x"), (b":scheme", b"https"), (b":authority", b"good.test")]
STRANGER = [*HEAD[:3], (b":authority", b"other.test")]
ANSWER = [(b":status", b"200")]
WINDOW = h2.settings.SettingCodes.INITIAL_WINDOW_SIZE


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Peer:
    """One end: a state of the library, and a way to send frames that it would never send."""

    def __init__(self, sock: socket.socket, *, client: bool) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.state = h2.connection.H2Connection(h2.config.H2Configuration(client_side=client, header_encoding=None))
        self.state.initiate_connection()
        self.events: list[h2.events.Event] = []

    async def say(self, raw: bytes = b"") -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, self.state.data_to_send() + raw)

    async def hear(self, enough: Callable[[], object]) -> None:
        """Take in and answer, until it is enough."""
        async with asyncio.timeout(10):
            while not enough():
                data = await asyncio.get_running_loop().sock_recv(self.socket, 65536)
                assert data, "the connection was cut"
                self.events += self.state.receive_data(data)
                await self.say()

    def is_answered(self) -> bool:
        return any(isinstance(event, h2.events.PingAckReceived) for event in self.events)

    def streams(self, kind: type[h2.events.Event]) -> list[int]:
        return [event.stream_id for event in self.events if isinstance(event, kind)]  # type: ignore[attr-defined]


@dataclass
class Stage:
    bridge: _Bridge
    guest: Peer
    server: Peer
    ended: list[BaseException]
    buffer: Buffer

    def held(self) -> int:
        """Bytes of bodies that wait at either end."""
        sides = (self.bridge.guest, self.bridge.server)
        return sum(len(waiting.data) for side in sides for waiting in side.waiting.values())

    def rule(self, *rules: HttpRule) -> None:
        """Other rules for requests, from now on."""
        self.bridge._gate.apply(NetworkOrder(compile_policy(Policy(allow=("good.test",), http=rules), {})))

    def refused(self) -> list[tuple[str, str]]:
        """What was told of requests that were refused: why, and which."""
        events = self.bridge._gate.status(0).events
        return [(event.reason, event.request) for event in events if event.request]

    def remembered(self) -> list[int]:
        """How many streams each end has in each of its books."""
        sides: tuple[_Side, ...] = (self.bridge.guest, self.bridge.server)
        books = [len(book) for side in sides for book in (side.twins, side.waiting, side.finished)]
        return [*books, len(self.bridge._flow.underway)]

    async def wait_for(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(10):
            while not holds():
                await asyncio.sleep(0.001)

    async def ask(self, head: list[tuple[bytes, bytes]] = HEAD, *, end: bool = True) -> int:
        stream_id = self.guest.state.get_next_available_stream_id()
        self.guest.state.send_headers(stream_id, head, end_stream=end)
        await self.guest.say()
        return stream_id

    async def settle(self) -> None:
        """Until all that was said before has been taken, at both ends."""
        for peer in (self.guest, self.server):
            peer.events.clear()
            peer.state.ping(b"settled!")
            await peer.say()
        for peer in (self.guest, self.server):
            await peer.hear(peer.is_answered)


@contextlib.contextmanager
def sockets() -> Iterator[list[socket.socket]]:
    made = [*socket.socketpair(), *socket.socketpair()]
    for sock in made:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    try:
        yield made
    finally:
        for sock in made:
            sock.close()


def new_buffer(waiting: Waiting | None = None) -> Buffer:
    return Buffer(memoryview(bytearray(limits.EGRESS_CHUNK_BYTES)), waiting or Waiting())


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with opened(new_buffer()) as stage:
        yield stage


@contextlib.asynccontextmanager
async def opened(buffer: Buffer) -> AsyncIterator[Stage]:
    gate = Gate("sb1", lambda *_: None)
    gate.apply(NetworkOrder(compile_policy(Policy(allow=("good.test",)), {})))
    with sockets() as (client, inside, outside, server), anyio.CancelScope() as scope:

        async def connect() -> Plain:
            raise AssertionError("HTTP/2 has its connection")

        site = Site("good.test", ADDRESS, 443, tls=True, connect=connect)
        flow = Flow(ADDRESS, 443, scope, 0.0, name="good.test", proven=True, looked_inside=True)
        gate.opened(flow)
        bridge = _Bridge(gate, flow, site, Plain(inside), Plain(outside), buffer, Idleness(lambda: None))
        stage = Stage(bridge, Peer(client, client=True), Peer(server, client=False), [], buffer)

        async def one(way: Callable[[], object]) -> None:
            try:
                await way()  # type: ignore[misc]
            except h2.exceptions.ProtocolError as error:
                stage.ended.append(error)

        async with anyio.create_task_group() as tasks:
            await bridge.guest.flush()
            await bridge.server.flush()
            tasks.start_soon(one, bridge.up)
            tasks.start_soon(one, bridge.down)
            tasks.start_soon(one, bridge.tell_cuts)
            yield stage
            tasks.cancel_scope.cancel()
        bridge.guest.forget()
        bridge.server.forget()


async def closed_window(stage: Stage) -> None:
    """The client takes no bodies."""
    stage.guest.state.update_settings({WINDOW: 0})
    await stage.settle()


async def answered(stage: Stage, stream_id: int, body: bytes) -> None:
    """The server has the request, and answers it without an end."""
    del stream_id
    await stage.server.hear(lambda: stage.server.streams(h2.events.RequestReceived))
    twin = stage.server.streams(h2.events.RequestReceived)[-1]
    stage.server.events.clear()
    stage.server.state.send_headers(twin, ANSWER)
    if body:
        stage.server.state.send_data(twin, body)
    await stage.server.say()


async def test_frames_without_bytes_leave_nothing(stage: Stage) -> None:
    """Nine bytes each on the wire, as many as one end may send in vain, behind a byte that nobody takes."""
    await closed_window(stage)
    await answered(stage, await stage.ask(), b"x")
    await stage.wait_for(stage.held)
    twin = next(iter(stage.bridge.server.twins))
    for _ in range(30):
        await stage.server.say(DataFrame(twin, b"").serialize() * 50)
    await stage.settle()
    assert not stage.ended
    assert stage.held() == 1
    waiting = next(iter(stage.bridge.guest.waiting.values()))
    assert isinstance(waiting.data, bytearray), "one buffer, not a list of pieces"


async def test_streams_that_the_client_gives_up_are_forgotten_and_cost_no_window(stage: Stage) -> None:
    """More of them than fit into the connection's window; then one comes through whole."""
    await closed_window(stage)
    for _ in range(3 * limits.HTTP2_WINDOW_BYTES // 60_000):
        stream_id = await stage.ask()
        await answered(stage, stream_id, b"")
        twin = stage.bridge.guest.twins[stream_id]
        left = 60_000
        while left:
            room = min(left, stage.server.state.local_flow_control_window(twin), 16_384)
            assert room > 0, "the window shrinks"
            stage.server.state.send_data(twin, b"x" * room)
            left -= room
        await stage.server.say()
        await stage.wait_for(lambda: stage.held() == 60_000)
        stage.guest.state.reset_stream(stream_id)
        await stage.guest.say()
        await stage.settle()
        assert stage.held() == 0
    assert stage.remembered() == [0] * 7
    assert len(stage.bridge.guest.state._closed_streams) <= limits.HTTP2_CLOSED_MAX


async def test_refused_streams_that_are_given_up_are_forgotten(stage: Stage) -> None:
    await closed_window(stage)
    for _ in range(20):
        stream_id = await stage.ask(STRANGER)
        await stage.wait_for(lambda: stage.held())
        stage.guest.state.reset_stream(stream_id)
        await stage.settle()
    assert stage.remembered() == [0] * 7


async def test_streams_that_the_server_resets_are_forgotten(stage: Stage) -> None:
    for _ in range(20):
        await stage.ask()
        await stage.server.hear(lambda: stage.server.streams(h2.events.RequestReceived))
        stage.server.state.reset_stream(stage.server.streams(h2.events.RequestReceived)[-1])
        await stage.settle()
    assert stage.remembered() == [0] * 7


async def test_what_is_remembered_of_ended_streams_is_bounded(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(stage.bridge.guest.state).MAX_CLOSED_STREAMS == limits.HTTP2_CLOSED_MAX
    for side in (stage.bridge.guest, stage.bridge.server):
        assert side.state._closed_streams._size_limit == limits.HTTP2_CLOSED_MAX  # type: ignore[attr-defined]


@pytest.mark.parametrize("whose", ["guest", "server"])
async def test_settings_without_a_meaning_do_not_pile_up(stage: Stage, whose: str) -> None:
    peer: Peer = getattr(stage, whose)
    frame = SettingsFrame(0, dict.fromkeys(range(16384, 16384 + limits.HTTP2_SETTINGS_MAX + 1), 1))
    await peer.say(frame.serialize())
    await stage.wait_for(lambda: stage.ended)


async def test_long_trailers_do_not_wait_behind_a_body(stage: Stage) -> None:
    """The control is a short one, which does."""
    await closed_window(stage)
    for size, resets in ((100, 0), (limits.HTTP2_TRAILERS_BYTES_MAX, 1)):
        stream_id = await stage.ask()
        await answered(stage, stream_id, b"x")
        twin = stage.bridge.guest.twins[stream_id]
        stage.server.state.send_headers(twin, [(b"x-status", b"0" * size)], end_stream=True)
        await stage.settle()
        assert len(stage.guest.streams(h2.events.StreamReset)) == resets
    assert stage.held() == 1


async def test_trailers_of_many_streams_do_not_wait_without_a_bound(stage: Stage) -> None:
    await closed_window(stage)
    size = limits.HTTP2_TRAILERS_BYTES_MAX // 2
    fit = limits.HTTP2_TRAILERS_WAITING_BYTES_MAX // (size + len(b"x-status"))
    for number in range(fit + 3):
        stream_id = await stage.ask()
        await answered(stage, stream_id, b"x")
        twin = stage.bridge.guest.twins[stream_id]
        stage.server.state.send_headers(twin, [(b"x-status", b"0" * size)], end_stream=True)
        await stage.settle()
        assert bool(stage.guest.streams(h2.events.StreamReset)) is (number >= fit)
    assert len(stage.bridge.guest.waiting) == fit


async def test_what_one_read_causes_goes_out_before_more_is_done(stage: Stage) -> None:
    """Requests of a few bytes that become long ones, because the server allows no short words; and it reads nothing."""
    stage.server.state.update_settings({h2.settings.SettingCodes.HEADER_TABLE_SIZE: 0})
    await stage.server.say()
    await stage.wait_for(lambda: stage.bridge.server.state.encoder.header_table_size == 0)
    long = [(f"x-{number}".encode(), b"~" * 1000) for number in range(3)]
    before_bytes = 0
    for _ in range(300):
        stream_id = stage.guest.state.get_next_available_stream_id()
        stage.guest.state.send_headers(stream_id, [*HEAD, *long * 10], end_stream=True)
        stage.guest.state.reset_stream(stream_id)
    said = stage.guest.state.data_to_send()
    assert len(said) < 65536, "all of it is one read"
    await stage.guest.say(said)
    await stage.wait_for(lambda: len(stage.bridge.server._out) > before_bytes or stage.bridge.server._flushing.locked())
    for _ in range(200):
        await asyncio.sleep(0.001)
        assert stage.bridge.server.gather() < 2 * limits.HTTP2_OUT_BYTES_MAX
    assert len(stage.bridge.server.state._closed_streams) < 300, "the rest waits"


async def test_a_peer_may_not_have_us_remember_more_heads_than_usual(stage: Stage) -> None:
    stage.guest.state.update_settings({h2.settings.SettingCodes.HEADER_TABLE_SIZE: 1 << 30})
    await stage.settle()
    encoder = stage.bridge.guest.state.encoder
    assert encoder.header_table_size == limits.HTTP2_TABLE_BYTES_MAX
    for number in range(40):
        await answered(stage, await stage.ask(), b"")
        twin = next(iter(stage.bridge.server.twins))
        stage.server.state.send_headers(twin, [(b"x-new", b"%d" % number + b"~" * 2000)], end_stream=True)
        await stage.settle()
    assert encoder.header_table._current_size <= limits.HTTP2_TABLE_BYTES_MAX
    assert not stage.ended


# --- refusals, and rules that change ---


def head(path: str, method: str = "GET", host: str = "good.test") -> list[tuple[bytes, bytes]]:
    return [
        (b":method", method.encode()),
        (b":path", path.encode()),
        (b":scheme", b"https"),
        (b":authority", host.encode()),
    ]


async def test_every_refusal_is_told(stage: Stage) -> None:
    """And nothing of what is not: the control is the last one."""
    stage.rule(HttpRule("good.test", path_prefixes=("/pub",)))
    await stage.ask(head("/private?secret=x"))
    await stage.ask(head("/pub", host="other.test"))
    await stage.ask(head("/pub", method="X" * 60_000))
    await stage.ask([(name, b"ftp" if name == b":scheme" else value) for name, value in head("/pub")])
    await stage.ask(head("/pub/fine"))
    await stage.settle()
    assert stage.refused() == [
        ("http_rule", "GET /private"),
        ("host_mismatch", "GET /pub"),
        ("bad_request", "X" * 32 + " /pub"),
        ("bad_request", "GET /pub"),
    ]
    await stage.server.hear(lambda: stage.server.streams(h2.events.RequestReceived))


@pytest.mark.parametrize("way", ["up", "down", "stuck"])
async def test_a_tighter_rule_resets_the_streams_that_it_does_not_allow_and_no_others(stage: Stage, way: str) -> None:
    """Neither end says anything meanwhile. The control is a looser rule before it, and the other stream after it."""
    stage.rule(HttpRule("good.test", path_prefixes=("/x", "/pub")))
    if way == "stuck":
        await closed_window(stage)
    twins = {}
    for path in ("/x", "/pub"):
        stream_id = await stage.ask(head(path, "POST"), end=way != "up")
        await answered(stage, stream_id, b"x")
        twins[path] = stream_id, stage.bridge.guest.twins[stream_id]
    stage.rule(HttpRule("good.test", methods=("POST",)))
    await stage.settle()
    assert not stage.guest.streams(h2.events.StreamReset)
    stage.rule(HttpRule("good.test", path_prefixes=("/pub",)))
    await stage.guest.hear(lambda: stage.guest.streams(h2.events.StreamReset))
    await stage.server.hear(lambda: stage.server.streams(h2.events.StreamReset))
    assert stage.guest.streams(h2.events.StreamReset) == [twins["/x"][0]]
    assert stage.server.streams(h2.events.StreamReset) == [twins["/x"][1]]
    assert stage.refused() == [("policy_changed", "POST /x")]
    stage.guest.state.update_settings({WINDOW: 65535})
    stage.server.state.send_data(twins["/pub"][1], b"more", end_stream=True)
    await stage.server.say()
    await stage.guest.say()
    await stage.guest.hear(lambda: stage.guest.streams(h2.events.StreamEnded) == [twins["/pub"][0]])
    if way == "up":
        stage.guest.state.end_stream(twins["/pub"][0])
    await stage.settle()
    assert stage.remembered() == [0] * 7


async def test_a_path_that_is_too_long_to_keep_is_below_nothing_when_rules_change(stage: Stage) -> None:
    for size, resets in ((limits.HTTP_PATH_KEPT_CHARS_MAX - 5, 0), (limits.HTTP_PATH_KEPT_CHARS_MAX, 1)):
        stage.rule(HttpRule("good.test", path_prefixes=("/",)))
        await answered(stage, await stage.ask(head("/pub/" + "x" * size + "?" + "y" * 5000)), b"")
        stage.rule(HttpRule("good.test", path_prefixes=("/pub",)))
        await stage.settle()
        assert len(stage.guest.streams(h2.events.StreamReset)) == resets


# --- all connections together ---


async def passed(stage: Stage, size: int) -> int:
    """So much comes down on a new stream that has no end, to a client that takes it; the server's stream."""
    wide = 1 << 24
    stage.guest.state.update_settings({WINDOW: wide})
    stage.guest.state.increment_flow_control_window(wide)
    await answered(stage, await stage.ask(), b"")
    twin = next(iter(stage.bridge.server.twins))
    while size:
        part = said(stage.server, twin, min(size, 60_000))
        assert part > 0, "its window is never shut for good"
        size -= part
        await stage.server.say()
        await stage.settle()
    return twin


def said(peer: Peer, stream_id: int, size: int) -> int:
    """How much of so many bytes the peer may send now; it is on its way with the next word."""
    left = size
    while room := min(left, peer.state.local_flow_control_window(stream_id), 16_384):
        peer.state.send_data(stream_id, b"x" * room)
        left -= room
    return size - left


@pytest.mark.parametrize("is_scarce", [True, False])
async def test_many_connections_whose_clients_take_nothing_hold_little_in_sum(
    is_scarce: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two sandboxes, after each has shown that it reads well. The control: where there is plenty they hold more."""
    links, least, own_max, total_max = 10, 65535, 192 * limits.KIB, 320 * limits.KIB
    if is_scarce:
        monkeypatch.setattr(limits, "EGRESS_WAITING_BYTES_MAX", own_max)
        monkeypatch.setattr(limits, "EGRESS_WAITING_TOTAL_BYTES_MAX", total_max)
        monkeypatch.setattr(limits, "EGRESS_PIECE_BYTES_MIN", limits.KIB)
    waiting = Waiting()
    buffers = [new_buffer(waiting), new_buffer(waiting)]
    async with contextlib.AsyncExitStack() as stack:
        stages = [await stack.enter_async_context(opened(buffer)) for buffer in buffers for _ in range(links)]
        sent = 0
        for stage in stages:
            twin = await passed(stage, 250_000)
            await closed_window(stage)
            mine = said(stage.server, twin, limits.MIB)
            await stage.server.say()
            await stage.wait_for(lambda stage=stage, mine=mine: stage.held() == mine)  # type: ignore[misc]
            sent += mine
        assert waiting.size_bytes == sent == sum(stage.held() for stage in stages)
        if is_scarce:
            assert sent <= total_max + len(stages) * least
            assert buffers[0].waiting_bytes <= own_max + links * least
            assert waiting.promised_bytes <= total_max
        else:
            assert sent > 2 * len(stages) * least
        for stage in stages:
            stage.guest.events.clear()
            stage.guest.state.update_settings({WINDOW: 1 << 24})
            await stage.guest.say()
            guest, before = stage.guest, stage.held()
            await guest.hear(lambda guest=guest, before=before: taken(guest) == before)  # type: ignore[misc]
            assert stage.held() == 0, "nothing of what waited is lost, and all go on"
    assert (waiting.size_bytes, waiting.promised_bytes) == (0, 0)


def taken(peer: Peer) -> int:
    return sum(len(event.data or b"") for event in peer.events if isinstance(event, h2.events.DataReceived))
