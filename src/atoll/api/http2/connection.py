"""HTTP/2 to a caller: one connection, many exchanges at once, each run by the application as if it were alone.

    connection ─▶ frames ─▶ stream ─▶ exchange ─▶ application
                               └────▶ refused: too many at once, or a head that no honest client sends

Everything that a peer may pile up has a bound: heads, streams, bytes that wait (the windows), streams that are opened
and given up again, words that carry nothing, settings, and the time without any stream. Of what one read brings a part
is understood at a time, and others have their turn in between. A peer that does not read is not read from either.
WebSockets and tunnels stay on HTTP/1.1, which clients choose for them.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable
from typing import Any

import h2.config
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
import structlog
from hyperframe.frame import GoAwayFrame
from uvicorn import Config
from uvicorn.protocols.utils import get_local_addr, get_remote_addr
from uvicorn.server import ServerState

from atoll.api.http2.exchange import Exchange
from atoll.api.http2.heads import BadHead, Head, request_head
from atoll.model import limits
from atoll.wire.http2 import Purse, State

log = structlog.get_logger(__name__)

ALPN = "h2"

_Setting = h2.settings.SettingCodes
_Code = h2.errors.ErrorCodes
_SETTINGS = {
    _Setting.MAX_CONCURRENT_STREAMS: limits.HTTP2_STREAMS_MAX,
    _Setting.INITIAL_WINDOW_SIZE: limits.HTTP2_UPLOAD_WINDOW_BYTES,
    _Setting.MAX_HEADER_LIST_SIZE: limits.HTTP_HEAD_BYTES_MAX,
    _Setting.ENABLE_CONNECT_PROTOCOL: 0,
}


class Http2Connection(asyncio.Protocol):
    """One connection, as the HTTP server knows connections: it is asked to shut down, and its tasks are waited for."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any]) -> None:
        self._app = config.loaded_app
        self._keep_alive_s = config.timeout_keep_alive
        self._server_state = server_state
        self._app_state = app_state
        self._loop = asyncio.get_running_loop()
        self._state = State(h2.config.H2Configuration(client_side=False, header_encoding=None))
        self._state.local_settings = h2.settings.Settings(client=False, initial_values=_SETTINGS)
        self._streams: dict[int, Exchange] = {}
        self._running = 0
        self._ended_total = 0
        self._given_up_total = 0
        self._purse = Purse(self._loop.time())
        self._stopping = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._idle: asyncio.TimerHandle | None = None
        self._unheard = bytearray()
        self._said: deque[h2.events.Event] = deque()
        self._next_turn: asyncio.Handle | None = None

    # --- what the transport says ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._server_state.connections.add(self)  # type: ignore[arg-type] # it has what the server needs: shutdown()
        self._state.initiate_connection()
        self._state.increment_flow_control_window(limits.HTTP2_UPLOADS_BYTES_MAX)
        self._flush()
        self._wait_idle()

    def data_received(self, data: bytes) -> None:
        self._unheard += data
        if self._next_turn is None:
            self._hear_some()

    def _hear_some(self) -> None:
        """What one turn has time for. A read may be thousands of frames; until all are heard no more is read."""
        self._next_turn = None
        try:
            for _ in range(limits.INGRESS_EVENTS_IN_TURN):
                if not self._understand():
                    break
                event = self._said.popleft()
                if not self._purse.hear(event, self._loop.time()):
                    raise _TooMuch
                self._take(event)
        except (h2.exceptions.ProtocolError, _TooMuch) as error:
            log.debug("http2_refused", error=repr(error))
            self._close(_Code.ENHANCE_YOUR_CALM if isinstance(error, _TooMuch) else None)
            return
        self._flush()
        if self._said or self._unheard:
            self._next_turn = self._loop.call_soon(self._hear_some)
        self._mind_reading()

    def _understand(self) -> bool:
        """Whether there is something to hear; some of what came becomes words if none are left."""
        while self._unheard and not self._said:
            part = bytes(self._unheard[: limits.HTTP2_PART_BYTES])
            del self._unheard[: limits.HTTP2_PART_BYTES]
            self._said.extend(self._state.receive_data(part))
        return bool(self._said)

    def _mind_reading(self) -> None:
        """What it asks for has to wait until it was heard, and has read what it asked for before."""
        if self._next_turn is not None or not self._writable.is_set():
            self._transport.pause_reading()
        elif not self._transport.is_closing():
            self._transport.resume_reading()

    def _stop_hearing(self) -> None:
        self._unheard.clear()
        self._said.clear()
        if self._next_turn is not None:
            self._next_turn.cancel()
            self._next_turn = None

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._server_state.connections.discard(self)
        self._stop_hearing()
        self._stop_waiting()
        self._writable.set()
        for exchange in self._streams.values():
            exchange.leave()
        self._streams.clear()

    def pause_writing(self) -> None:
        self._writable.clear()
        self._mind_reading()

    def resume_writing(self) -> None:
        self._writable.set()
        self._mind_reading()

    def shutdown(self) -> None:
        """No more requests from now on; those under way are finished."""
        if self._stopping:
            return
        self._stopping = True
        if not self._streams:
            self._close(_Code.NO_ERROR)
            return
        # The library takes its own farewell for the end; this one leaves the streams that are open as they are.
        farewell = GoAwayFrame(0, last_stream_id=max(self._streams), error_code=_Code.NO_ERROR)
        self._flush()
        self._transport.write(farewell.serialize())

    # --- what the peer says ---

    def _take(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            self._begin(event)
        elif isinstance(event, h2.events.DataReceived):
            self._take_data(event)
        elif isinstance(event, h2.events.StreamEnded):
            self._with(event.stream_id, Exchange.take_end)
        elif isinstance(event, h2.events.StreamReset):
            self._give_up(event.stream_id)
        elif isinstance(event, h2.events.WindowUpdated | h2.events.RemoteSettingsChanged):
            for exchange in self._streams.values():
                exchange.has_room()

    def _with(self, stream_id: int | None, act: Callable[[Exchange], None]) -> None:
        exchange = self._streams.get(stream_id or 0)
        if exchange is not None:
            act(exchange)

    def _begin(self, event: h2.events.RequestReceived) -> None:
        stream_id = event.stream_id or 0
        if self._stopping or self._running >= limits.HTTP2_EXCHANGES_MAX:
            self._state.reset_stream(stream_id, _Code.REFUSED_STREAM)
            return
        fields = ((bytes(name), bytes(value)) for name, value in event.headers or ())
        try:
            head = request_head(fields, has_body=event.stream_ended is None)
        except BadHead:
            self._count_given_up()
            self._state.reset_stream(stream_id, _Code.PROTOCOL_ERROR)
            return
        self._stop_waiting()
        scope = {
            **head.scope(),
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "scheme": "https",
            "server": get_local_addr(self._transport),
            "client": get_remote_addr(self._transport),
            "state": self._app_state.copy(),
        }
        exchange = self._streams[stream_id] = Exchange(self, stream_id, head, scope)
        self._running += 1
        task = self._loop.create_task(exchange.run(self._app))
        self._server_state.tasks.add(task)
        task.add_done_callback(self._server_state.tasks.discard)

    def _take_data(self, event: h2.events.DataReceived) -> None:
        stream_id, data, counted = event.stream_id or 0, event.data or b"", event.flow_controlled_length or 0
        exchange = self._streams.get(stream_id)
        if exchange is None or not exchange.take_body(data):
            self._state.acknowledge_received_data(counted, stream_id)  # read and forgotten
        elif counted > len(data):
            self._state.acknowledge_received_data(counted - len(data), stream_id)  # padding

    def _give_up(self, stream_id: int | None) -> None:
        exchange = self._streams.pop(stream_id or 0, None)
        if exchange is not None:
            exchange.leave()
            self._forget_body(exchange, stream_id or 0)
            self._count_given_up()
            self._wait_idle()

    def _forget_body(self, exchange: Exchange, stream_id: int) -> None:
        """What nobody will read must not take the room of other streams on the connection."""
        left_bytes = exchange.body_drop()
        if left_bytes:
            self._state.acknowledge_received_data(left_bytes, stream_id)

    def _count_given_up(self) -> None:
        """To open streams and drop them costs a peer nothing and us an exchange each: some are bad luck, not many."""
        self._given_up_total += 1
        if self._given_up_total > self._ended_total + limits.HTTP2_GIVEN_UP_MAX:
            raise _TooMuch

    # --- what exchanges say; a stream that is gone is no error, its exchange hears of it ---

    async def wait_writable(self) -> None:
        await self._writable.wait()

    def send_head(self, stream_id: int, head: Head, *, end: bool) -> None:
        self._say(functools.partial(self._state.send_headers, stream_id, head, end_stream=end))

    def send_some(self, stream_id: int, data: memoryview) -> int:
        sent = 0
        try:
            while sent < len(data):
                room = min(self._state.local_flow_control_window(stream_id), self._state.max_outbound_frame_size)
                if room <= 0:
                    break
                part = bytes(data[sent : sent + room])
                self._state.send_data(stream_id, part)
                self._purse.spoke()
                sent += len(part)
        except h2.exceptions.ProtocolError:
            self._with(stream_id, Exchange.leave)
        self._flush()
        return sent

    def send_end(self, stream_id: int) -> None:
        self._say(functools.partial(self._state.end_stream, stream_id))

    def acknowledge(self, stream_id: int, size_bytes: int) -> None:
        self._say(functools.partial(self._state.acknowledge_received_data, size_bytes, stream_id))

    def finished(self, stream_id: int, *, whole: bool) -> None:
        self._running -= 1
        exchange = self._streams.pop(stream_id, None)
        if exchange is not None:
            self._ended_total += 1
            self._say(functools.partial(self._forget_body, exchange, stream_id))
            if not (whole and exchange.request_whole):
                # An answer without an end stays one; the rest of a request that was answered is not wanted.
                code = _Code.NO_ERROR if whole else _Code.INTERNAL_ERROR
                self._say(functools.partial(self._state.reset_stream, stream_id, code))
        if not self._streams and self._stopping:
            self._close(_Code.NO_ERROR)
        else:
            self._wait_idle()

    def _say(self, act: Callable[[], object]) -> None:
        try:
            act()
        except h2.exceptions.ProtocolError as error:
            log.debug("http2_too_late", error=repr(error))
        self._flush()

    def _flush(self) -> None:
        data = self._state.data_to_send()
        if data and not self._transport.is_closing():
            self._transport.write(data)

    # --- its end ---

    def _close(self, code: h2.errors.ErrorCodes | None) -> None:
        """Say farewell, unless the library has said why already, and hang up."""
        if code is not None:
            self._say(functools.partial(self._state.close_connection, code))
        self._flush()
        self._stop_hearing()
        self._stop_waiting()
        self._transport.close()

    def _wait_idle(self) -> None:
        """The time without a stream, whatever else the peer says meanwhile."""
        if not self._streams and self._idle is None and not self._transport.is_closing():
            self._idle = self._loop.call_later(self._keep_alive_s, self._close, _Code.NO_ERROR)

    def _stop_waiting(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None


class _TooMuch(Exception):
    """The peer costs more than it is worth."""
