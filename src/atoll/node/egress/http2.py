"""HTTP/2 looked at: every stream is judged by its head; bodies and trailers pass, with the windows of both ends joined.

A byte is acknowledged to the one end when it has gone to the other, so what waits here is bounded by the windows that
we offer. They are small at first, and grow with what passes as far as the `Buffer` that all share still promises more.
What is not bytes of a body has bounds of its own: what one read may cause before it must have gone out, what is
remembered of streams that ended, settings, trailers, and words that carry nothing (`wire/http2.py`).

The proxy speaks HTTP/2 to the sandbox only where the server beyond speaks it too: nothing is translated.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import h2.config
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from atoll.model import limits
from atoll.node.egress.buffer import Buffer
from atoll.node.egress.channel import Channel
from atoll.node.egress.gate import Flow, Gate
from atoll.node.egress.inject import Headers
from atoll.node.egress.passage import Idleness, ended_when_idle
from atoll.node.egress.requests import STATUS, Asked, Site, judge, note_refused, words
from atoll.node.egress.underway import underway
from atoll.wire.http2 import Purse, State

_SettingCode = h2.settings.SettingCodes
_NOT_ENDED = (h2.exceptions.ProtocolError, KeyError)


@dataclass
class _Waiting:
    """What is still to go out on a stream: bytes, then trailers or nothing, then its end."""

    data: bytearray = field(default_factory=bytearray)
    trailers: Headers | None = None
    ended: bool = False


class _Side:
    """One end: its channel, its state, and what waits for its window."""

    def __init__(self, channel: Channel, buffer: Buffer, *, client: bool) -> None:
        self.channel = channel
        self._buffer = buffer
        config = h2.config.H2Configuration(client_side=client, header_encoding=None)
        self.state = State(config)
        self.twins: dict[int, int] = {}
        self.waiting: dict[int, _Waiting] = {}
        self.finished: set[int] = set()
        """Streams on which we have said all at this end; one that is ended twice is an error to the library."""
        self._out = bytearray()
        self._flushing = anyio.Lock()
        self._promised_bytes = 0
        self._passed_bytes = 0
        values = {
            _SettingCode.ENABLE_PUSH: 0,
            _SettingCode.MAX_CONCURRENT_STREAMS: limits.HTTP2_STREAMS_MAX,
            _SettingCode.INITIAL_WINDOW_SIZE: limits.HTTP2_WINDOW_BYTES,
            _SettingCode.MAX_HEADER_LIST_SIZE: limits.HTTP_HEAD_BYTES_MAX,
        }
        self.state.local_settings = h2.settings.Settings(client=client, initial_values=values)
        self.state.initiate_connection()

    def passed(self, size_bytes: int) -> None:
        """So much of what this end has sent is on its way; an end of which all is soon gone may send more at a time."""
        self._passed_bytes += size_bytes
        window = self.state.window_bytes
        if self._passed_bytes < window or window >= limits.HTTP2_WINDOW_BYTES:
            return
        self._passed_bytes = 0
        more = self._buffer.promise(min(window, limits.HTTP2_WINDOW_BYTES - window))
        if more:
            self._promised_bytes += more
            self.state.widen(more)

    def forget(self) -> None:
        """It is over: nothing of it waits any more, and nothing will come."""
        self._buffer.waits(-sum(len(waiting.data) for waiting in self.waiting.values()))
        self.waiting.clear()
        self._buffer.release(self._promised_bytes)
        self._promised_bytes = 0

    def gather(self) -> int:
        """Take what is to go out from the state; how many bytes wait for it now."""
        self._out += self.state.data_to_send()
        return len(self._out)

    async def flush(self) -> None:
        async with self._flushing:
            while self.gather():
                data, self._out = bytes(self._out), bytearray()
                with self._buffer.holding(len(data)):
                    await self.channel.send(data)


class _Bridge:
    """Two ends of one connection, stream by stream."""

    def __init__(
        self,
        gate: Gate,
        flow: Flow,
        site: Site,
        inside: Channel,
        outside: Channel,
        buffer: Buffer,
        idleness: Idleness,
    ) -> None:
        self._gate = gate
        self._buffer = buffer
        self._idleness = idleness
        self._flow = flow
        self._site = site
        self._purse = Purse(time.monotonic())
        self._is_cut = anyio.Event()
        self.guest = _Side(inside, buffer, client=False)
        self.server = _Side(outside, buffer, client=True)

    async def pump(self, source: _Side, target: _Side, count: Callable[[int], Awaitable[None]]) -> None:
        """Take what one end says until it has said all."""
        while True:
            data = await source.channel.receive(self._buffer.look_bytes)
            if not data:
                return
            self._idleness.moved()
            await count(len(data))
            for start in range(0, len(data), limits.HTTP2_PART_BYTES):
                await self._hear(data[start : start + limits.HTTP2_PART_BYTES], source, target)
            await source.flush()
            await target.flush()

    async def _hear(self, data: bytes, source: _Side, target: _Side) -> None:
        for number, event in enumerate(source.state.receive_data(data), 1):
            if not self._purse.hear(event, time.monotonic()):
                raise h2.exceptions.ProtocolError("much is said, and nothing of it matters")
            self._take(event, source, target)
            # Some bytes may be a hundred requests, each of which grows on its way.
            if source.gather() + target.gather() > min(limits.HTTP2_OUT_BYTES_MAX, self._buffer.piece_bytes):
                await source.flush()
                await target.flush()
            if number % limits.EGRESS_EVENTS_IN_TURN == 0:
                await anyio.lowlevel.checkpoint()  # others want their turn, too

    async def up(self) -> None:
        async def count(size_bytes: int) -> None:
            await self._gate.moved(self._flow, up=size_bytes)

        await self.pump(self.guest, self.server, count)

    async def down(self) -> None:
        async def count(size_bytes: int) -> None:
            await self._gate.moved(self._flow, down=size_bytes)

        await self.pump(self.server, self.guest, count)

    def _take(self, event: h2.events.Event, source: _Side, target: _Side) -> None:
        if isinstance(event, h2.events.RequestReceived):
            self._request(event)
        elif isinstance(event, h2.events.ResponseReceived | h2.events.InformationalResponseReceived):
            self._answer(event)
        elif isinstance(event, h2.events.DataReceived):
            self._data(event, source, target)
        elif isinstance(event, h2.events.TrailersReceived):
            self._trailers(event, source, target)
        elif isinstance(event, h2.events.StreamEnded):
            self._end(target, source.twins.get(event.stream_id or 0), None)
        elif isinstance(event, h2.events.StreamReset):
            self._give_up(source, target, event.stream_id or 0, event.error_code)
        elif isinstance(event, h2.events.WindowUpdated | h2.events.RemoteSettingsChanged):
            # Room at this end: what waits for it comes from the other.
            for stream_id in list(source.waiting):
                self._send(source, target, stream_id)

    def _request(self, event: h2.events.RequestReceived) -> None:
        stream_id = event.stream_id or 0
        head = [(bytes(name), bytes(value)) for name, value in event.headers or []]
        pseudo = {name: value for name, value in head if name.startswith(b":")}
        headers = [(name, value) for name, value in head if not name.startswith(b":")]
        hosts = [pseudo.get(b":authority", b""), *(value for name, value in headers if name == b"host")]
        strange = b":protocol" in pseudo or pseudo.get(b":scheme") != b"https"
        asked = Asked(pseudo.get(b":method", b""), pseudo.get(b":path", b""), hosts, headers, strange)
        refusal, rewritten = judge(self._gate, self._site, asked)
        if rewritten is None:
            self._refuse(stream_id, refusal)
            return
        lowered = [(name.lower(), value) for name, value in rewritten.headers]
        order = [(name, value) for name, value in pseudo.items() if name != b":path"]
        try:
            twin = self.server.state.get_next_available_stream_id()
            ended = event.stream_ended is not None
            self.server.state.send_headers(twin, [*order, (b":path", rewritten.target), *lowered], end_stream=ended)
        except _NOT_ENDED:  # the server takes no more streams, or is going away: the client may try again
            self._reset(self.guest, stream_id, h2.errors.ErrorCodes.REFUSED_STREAM)
            return
        self.guest.twins[stream_id], self.server.twins[twin] = twin, stream_id
        if ended:
            self.server.finished.add(twin)
        self._flow.underway[stream_id] = underway(asked.method, asked.target, lambda: self._cut(stream_id))

    def _cut(self, stream_id: int) -> None:
        """The rules of this moment do not allow what is under way on a stream; the others go on."""
        request = self._flow.underway[stream_id]
        note_refused(self._gate, self._site, request.method, request.path, "policy_changed")
        self._give_up(self.guest, self.server, stream_id, h2.errors.ErrorCodes.CANCEL)
        self._reset(self.guest, stream_id, h2.errors.ErrorCodes.CANCEL)
        self._is_cut.set()

    async def tell_cuts(self) -> None:
        """Tell both ends of streams that were cut, though neither of them says anything."""
        while True:
            await self._is_cut.wait()
            self._is_cut = anyio.Event()
            await self.guest.flush()
            await self.server.flush()

    def _refuse(self, stream_id: int, reason: str) -> None:
        body = words(reason)
        headers = [
            (b":status", str(STATUS.get(reason, 403)).encode()),
            (b"content-type", b"text/plain"),
            (b"content-length", str(len(body)).encode()),
            (b"x-atoll-reason", reason.encode()),
        ]
        try:
            self.guest.state.send_headers(stream_id, headers)
            self.guest.waiting[stream_id] = _Waiting(bytearray(body), ended=True)
            self._buffer.waits(len(body))
            self._send(self.guest, self.server, stream_id)
        except _NOT_ENDED:
            self._drop(self.guest, self.server, stream_id)

    def _answer(self, event: h2.events.ResponseReceived | h2.events.InformationalResponseReceived) -> None:
        stream_id = self.server.twins.get(event.stream_id or 0)
        if stream_id is not None:
            try:
                self.guest.state.send_headers(stream_id, event.headers or [])
            except _NOT_ENDED:
                self._give_up(self.guest, self.server, stream_id, h2.errors.ErrorCodes.CANCEL)

    def _data(self, event: h2.events.DataReceived, source: _Side, target: _Side) -> None:
        data, counted = event.data or b"", event.flow_controlled_length or 0
        stream_id = event.stream_id or 0
        twin = source.twins.get(stream_id)
        if twin is None:  # of a stream that was refused: read and forgotten
            _acknowledge(source, counted, stream_id)
            return
        if counted > len(data):
            _acknowledge(source, counted - len(data), stream_id)  # padding
        if data:
            target.waiting.setdefault(twin, _Waiting()).data += data
            self._buffer.waits(len(data))
            self._send(target, source, twin)

    def _trailers(self, event: h2.events.TrailersReceived, source: _Side, target: _Side) -> None:
        stream_id, headers = event.stream_id or 0, list(event.headers or [])
        waiting = sum(_size(waiting.trailers or ()) for waiting in target.waiting.values())
        size = _size(headers)
        if size > limits.HTTP2_TRAILERS_BYTES_MAX or waiting + size > limits.HTTP2_TRAILERS_WAITING_BYTES_MAX:
            self._give_up(source, target, stream_id, h2.errors.ErrorCodes.ENHANCE_YOUR_CALM)
            self._reset(source, stream_id, h2.errors.ErrorCodes.ENHANCE_YOUR_CALM)
            return
        self._end(target, source.twins.get(stream_id), headers if source is self.server else None)

    def _end(self, target: _Side, stream_id: int | None, trailers: object) -> None:
        if stream_id is None or stream_id in target.finished:
            return
        waiting = target.waiting.setdefault(stream_id, _Waiting())
        if not waiting.ended:
            waiting.ended = True
            waiting.trailers = list(trailers) if isinstance(trailers, list) else None
            self._send(target, self.guest if target is self.server else self.server, stream_id)

    def _send(self, target: _Side, source: _Side, stream_id: int) -> None:
        """Send what the window allows, acknowledge it where it came from, and end the stream after the last of it."""
        waiting = target.waiting[stream_id]
        origin = target.twins.get(stream_id)
        try:
            while waiting.data:
                room = min(target.state.local_flow_control_window(stream_id), target.state.max_outbound_frame_size)
                if room <= 0:
                    return
                part = bytes(waiting.data[:room])
                target.state.send_data(stream_id, part)
                self._purse.spoke()
                del waiting.data[: len(part)]
                self._buffer.waits(-len(part))
                if origin is not None:
                    _acknowledge(source, len(part), origin)
                    source.passed(len(part))
            if waiting.ended:
                del target.waiting[stream_id]
                self._finish(target, source, stream_id)
                if waiting.trailers is not None:
                    target.state.send_headers(stream_id, waiting.trailers, end_stream=True)
                else:
                    target.state.end_stream(stream_id)
        except _NOT_ENDED:  # the stream is gone at this end: so is what waited for it
            self._drop(target, source, stream_id)

    def _finish(self, target: _Side, source: _Side, stream_id: int) -> None:
        """This end has been told all; when the other has too, the pair is forgotten."""
        origin = target.twins.get(stream_id)
        if origin is not None and origin in source.finished:
            del target.twins[stream_id]
            source.twins.pop(origin, None)
            source.finished.discard(origin)
            self._flow.underway.pop(stream_id if target is self.guest else origin, None)
        elif origin is not None:
            target.finished.add(stream_id)

    def _give_up(self, source: _Side, target: _Side, stream_id: int, code: object) -> None:
        """A stream that is over at the one end is reset at the other, and forgotten at both."""
        self._drop(source, target, stream_id)
        source.finished.discard(stream_id)
        twin = source.twins.pop(stream_id, None)
        if twin is not None:
            self._reset(target, twin, code)

    def _drop(self, side: _Side, other: _Side, stream_id: int) -> None:
        """Forget what waits for a stream. Where it came from it counts as taken, or the connection's window shrinks."""
        waiting, origin = side.waiting.pop(stream_id, None), side.twins.get(stream_id)
        if waiting is None or not waiting.data:
            return
        self._buffer.waits(-len(waiting.data))
        if origin is not None:
            _acknowledge(other, len(waiting.data), origin)

    def _reset(self, target: _Side, stream_id: int, code: object) -> None:
        source = self.guest if target is self.server else self.server
        self._drop(target, source, stream_id)
        twin = target.twins.pop(stream_id, None)
        self._flow.underway.pop(stream_id if target is self.guest else twin or 0, None)
        target.finished.discard(stream_id)
        try:
            target.state.reset_stream(stream_id, code if isinstance(code, int) else 0)
        except _NOT_ENDED:
            return  # it has ended there already


def _size(headers: Iterable[tuple[bytes, bytes]]) -> int:
    return sum(len(name) + len(value) for name, value in headers)


def _acknowledge(side: _Side, size_bytes: int, stream_id: int) -> None:
    try:
        side.state.acknowledge_received_data(size_bytes, stream_id)
    except _NOT_ENDED:
        return  # the stream has ended; the connection's part of it is done


async def serve(gate: Gate, flow: Flow, inside: Channel, outside: Channel, site: Site, buffer: Buffer) -> None:
    """Serve one connection until either end has said all, or nothing moves on it any more."""
    with ended_when_idle() as idleness:
        bridge = _Bridge(gate, flow, site, inside, outside, buffer, idleness)
        try:
            await _serve(bridge, flow)
        finally:
            bridge.guest.forget()
            bridge.server.forget()


async def _serve(bridge: _Bridge, flow: Flow) -> None:
    await bridge.guest.flush()
    await bridge.server.flush()

    async with anyio.create_task_group() as tasks:

        async def one(way: Callable[[], Awaitable[None]]) -> None:
            try:
                await way()
            except h2.exceptions.ProtocolError:
                flow.cut_reason = "bad_request"
            except (OSError, TimeoutError):
                pass  # broken off: the other way ends with it
            tasks.cancel_scope.cancel()

        tasks.start_soon(one, bridge.up)
        tasks.start_soon(one, bridge.down)
        tasks.start_soon(one, bridge.tell_cuts)
