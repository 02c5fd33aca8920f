"""HTTP/1.1 looked at: every request of a connection is read, judged, changed and written anew.

Both sides are spoken through h11, so a request that two readers could understand in two ways does not get through: what
goes on is what was understood here. Each request must name the host that DNS and TLS named. The connection beyond is
made when the first request is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import h11

from atoll.model import limits
from atoll.node.egress.buffer import Buffer
from atoll.node.egress.channel import Channel
from atoll.node.egress.gate import Flow, Gate
from atoll.node.egress.inject import Headers
from atoll.node.egress.passage import Idleness, ended_when_idle
from atoll.node.egress.relay import relay
from atoll.node.egress.requests import STATUS, Asked, Site, authority, judge, words
from atoll.node.egress.underway import may_switch, underway

_HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"te", b"trailer", b"http2-settings"}
)
_FOR_PROXIES = re.compile(rb"https?://([^/?#]*)(.*)", re.DOTALL)
_Count = Callable[[int], Awaitable[None]]


class _Half:
    """One side: a channel and h11's idea of what was said on it."""

    def __init__(
        self, channel: Channel, role: type[h11.CLIENT] | type[h11.SERVER], count: _Count, buffer: Buffer
    ) -> None:
        self.channel = channel
        self._count = count
        self._buffer = buffer
        self._events = 0
        self.state = h11.Connection(role, max_incomplete_event_size=limits.HTTP_HEAD_BYTES_MAX)

    async def next(self) -> h11.Event | type[h11.PAUSED]:
        while True:
            event = self.state.next_event()
            if event is not h11.NEED_DATA:
                self._events += 1
                if self._events % limits.EGRESS_EVENTS_IN_TURN == 0:
                    await anyio.lowlevel.checkpoint()  # one read may be thousands of chunks of one byte
                assert not isinstance(event, type) or event is h11.PAUSED
                return event
            data = await self.channel.receive(self._buffer.look_bytes)
            with self._buffer.holding(len(data)):
                await self._count(len(data))
            self.state.receive_data(data)

    async def send(self, event: h11.Event) -> None:
        data = self.state.send(event)
        if data:
            with self._buffer.holding(len(data)):
                await self.channel.send(data)


async def serve(gate: Gate, flow: Flow, inside: Channel, site: Site, buffer: Buffer) -> None:
    """Serve the requests of one connection until it ends, or nothing moves on it any more."""
    with ended_when_idle() as idleness:
        await _serve(gate, flow, inside, site, buffer, idleness)


async def _serve(gate: Gate, flow: Flow, inside: Channel, site: Site, buffer: Buffer, idleness: Idleness) -> None:
    async def count_up(size_bytes: int) -> None:
        idleness.moved()
        await gate.moved(flow, up=size_bytes)

    async def count_down(size_bytes: int) -> None:
        idleness.moved()
        await gate.moved(flow, down=size_bytes)

    guest = _Half(inside, h11.SERVER, count_up, buffer)
    outside: _Half | None = None
    try:
        while True:
            request = await guest.next()
            if not isinstance(request, h11.Request):
                return
            refusal, head = _judge(gate, site, request)
            if refusal or head is None:
                flow.cut_reason = refusal
                await _refuse(guest, flow, refusal)
                return
            _begin(flow, head)
            outside = outside or _Half(await site.connect(), h11.CLIENT, count_down, buffer)
            await _exchange(guest, outside, head)
            if outside.state.our_state is h11.SWITCHED_PROTOCOL:
                idleness.stop()  # the relay has its own
                await _switch(gate, flow, guest, outside, buffer)
                return
            if guest.state.our_state is not h11.DONE or outside.state.their_state is not h11.DONE:
                return
            if guest.state.their_state is not h11.DONE or outside.state.our_state is not h11.DONE:
                return
            flow.underway.clear()
            guest.state.start_next_cycle()
            outside.state.start_next_cycle()
    except h11.RemoteProtocolError:
        if guest.state.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            flow.cut_reason = "bad_request"
            await _refuse(guest, flow, "bad_request")
    finally:
        if outside is not None:
            outside.channel.close()


def _judge(gate: Gate, site: Site, request: h11.Request) -> tuple[str, h11.Request | None]:
    """Why a request is refused, or the request as it goes on."""
    headers = [(bytes(name), bytes(value)) for name, value in request.headers]
    target = bytes(request.target)
    hosts = [value for name, value in headers if name == b"host"]
    if for_proxies := _FOR_PROXIES.fullmatch(target):
        hosts.append(for_proxies[1])
        target = for_proxies[2] if for_proxies[2].startswith(b"/") else b"/" + for_proxies[2]
    kept = _end_to_end(headers, only_websocket=bool(gate.order.rules.http_rules(site.name)))
    refusal, rewritten = judge(gate, site, Asked(bytes(request.method), target, hosts, kept))
    if rewritten is None:
        return refusal, None
    return "", h11.Request(method=request.method, target=rewritten.target, headers=rewritten.headers)


def _end_to_end(headers: Headers, *, only_websocket: bool) -> Headers:
    """Without what concerns only the hop to us; framing that contradicts itself loses the weaker half."""
    chunked = any(name == b"transfer-encoding" for name, _ in headers)
    dropped = {b"upgrade", *_HOP_BY_HOP, *((b"content-length",) if chunked else ())}
    kept = [(name, value) for name, value in headers if name not in dropped]
    wanted = [part.strip() for name, value in headers if name == b"upgrade" for part in value.split(b",")]
    wanted = [word for word in wanted if may_switch(word.lower(), only_websocket=only_websocket)]
    return [*kept, (b"upgrade", b", ".join(wanted)), (b"connection", b"upgrade")] if wanted else kept


def _begin(flow: Flow, head: h11.Request) -> None:
    """Keep what is asked until it has ended: by other rules it would end at once, and the connection with it."""
    proposed = [value.lower() for name, value in head.headers if name == b"upgrade"]
    protocols = tuple(word.strip() for value in proposed for word in value.split(b","))
    flow.underway[0] = underway(head.method, head.target, lambda: flow.cut("policy_changed"), protocols)


async def _exchange(guest: _Half, outside: _Half, head: h11.Request) -> None:
    """One request and its answer; the body may still be on its way up when the answer comes down."""
    await outside.send(head)
    failure: list[Exception] = []

    async def body_up() -> None:
        try:
            while isinstance(event := await guest.next(), h11.Data | h11.EndOfMessage):
                if isinstance(event, h11.Data):
                    await outside.send(event)
                else:
                    await outside.send(h11.EndOfMessage())  # without trailers, which nobody checks
                    return
        except (OSError, h11.ProtocolError, TimeoutError) as error:
            failure.append(error)
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(body_up)
        try:
            await _answer_down(guest, outside)
        except (OSError, h11.ProtocolError, TimeoutError) as error:
            failure.append(error)
        tasks.cancel_scope.cancel()
    if failure:
        raise failure[0]


async def _answer_down(guest: _Half, outside: _Half) -> None:
    while True:
        event = await outside.next()
        if isinstance(event, h11.InformationalResponse):
            await guest.send(event)
            if event.status_code == 101:
                return
        elif isinstance(event, h11.Response):
            headers = [(name, value) for name, value in event.headers if name not in _HOP_BY_HOP]
            await guest.send(h11.Response(status_code=event.status_code, headers=headers, reason=event.reason))
        elif isinstance(event, h11.Data):
            await guest.send(event)
        elif isinstance(event, h11.EndOfMessage):
            await guest.send(h11.EndOfMessage())
            return
        else:
            raise h11.RemoteProtocolError("the answer is cut off")


async def _switch(gate: Gate, flow: Flow, guest: _Half, outside: _Half, buffer: Buffer) -> None:
    """Both ends have agreed on another protocol (WebSocket): from here on bytes pass."""
    early_up, _ = guest.state.trailing_data
    early_down, _ = outside.state.trailing_data
    if early_up:
        await outside.channel.send(bytes(early_up))
    if early_down:
        await guest.channel.send(bytes(early_down))
    await relay(gate, flow, guest.channel, outside.channel, buffer)


async def _refuse(guest: _Half, flow: Flow, reason: str) -> None:
    """Say why, in words that a program's log will show, and end."""
    flow.answered = True
    body = words(reason)
    headers = [
        ("content-type", "text/plain"),
        ("content-length", str(len(body))),
        ("connection", "close"),
        ("x-atoll-reason", reason),
    ]
    await guest.send(h11.Response(status_code=STATUS.get(reason, 403), headers=headers, reason=b"Refused"))
    await guest.send(h11.Data(data=body))
    await guest.send(h11.EndOfMessage())
    await guest.channel.send_end()


def host_of(head: bytes) -> str:
    """The name in the Host of a request's head, for a first judgement; empty if there is none, or an address."""
    for line in head.split(b"\n\n")[0].split(b"\r\n\r\n")[0].splitlines()[1:]:
        field, colon, value = line.partition(b":")
        if colon and field.lower() == b"host":
            name = authority(value.strip()).partition(":")[0]
            return "" if name.replace(".", "").isdigit() else name
    return ""


def refusal_bytes(reason: str) -> bytes:
    """A whole answer for a request that is refused before any of it was judged."""
    body = f"atoll: this connection is not allowed by the sandbox's policy ({reason})\n"
    return (
        "HTTP/1.1 403 Refused\r\ncontent-type: text/plain\r\nconnection: close\r\n"
        f"x-atoll-reason: {reason}\r\ncontent-length: {len(body)}\r\n\r\n{body}"
    ).encode("ascii")
