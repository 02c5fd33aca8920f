"""What one end of HTTP/2 may have us remember, and how long it is heard that says much and asks for nothing; pure.

Priorities, pings, settings, windows, frames of no known kind and frames without bytes cost their sender ten bytes each,
and a reader far more. Honest ends send some at the start, some beside each request and answer, and a few with time. So
a connection has a purse: it is filled by heads and bytes that come or go, and slowly by time, and every word that
carries nothing is paid from it. Kinds of settings are kept for as long as the connection lasts, so there are few; and
the heads that we are asked to remember, so that they can be said in short, are no more than usual.
"""

from __future__ import annotations

import h2.config
import h2.connection
import h2.events
import hpack

from atoll.model import limits

_MESSAGES = (
    h2.events.RequestReceived,
    h2.events.ResponseReceived,
    h2.events.InformationalResponseReceived,
    h2.events.TrailersReceived,
)
_FREE = (h2.events.StreamEnded, h2.events.SettingsAcknowledged, h2.events.ConnectionTerminated)


class _Encoder(hpack.Encoder):
    """The library's, which keeps as much of what it has said as the other end asks for; this one no more than usual."""

    @property
    def header_table_size(self) -> int:
        return self.header_table.maxsize

    @header_table_size.setter
    def header_table_size(self, value: int) -> None:
        before = self.header_table.maxsize
        self.header_table.maxsize = min(value, limits.HTTP2_TABLE_BYTES_MAX)
        if self.header_table.maxsize != before:
            self.table_size_changes.append(self.header_table.maxsize)


class State(h2.connection.H2Connection):
    """The library's state, which remembers fewer streams that ended: it keeps them to know late frames by."""

    MAX_CLOSED_STREAMS = limits.HTTP2_CLOSED_MAX

    def __init__(self, config: h2.config.H2Configuration) -> None:
        super().__init__(config)
        self.encoder = _Encoder()

    @property
    def window_bytes(self) -> int:
        """How much the other end may send, on all streams together, before any of it was acknowledged."""
        return self._inbound_flow_control_window_manager.max_window_size

    def widen(self, more_bytes: int) -> None:
        """Let it send so much more; the library's own would only hand back sooner what is to be handed back anyway."""
        wide = self.window_bytes + more_bytes
        self.increment_flow_control_window(more_bytes)
        self._inbound_flow_control_window_manager.max_window_size = wide


class Purse:
    """That of one connection."""

    def __init__(self, now_s: float) -> None:
        self._left = float(limits.HTTP2_IDLE_FRAMES_MAX)
        self._filled_s = now_s
        self._kinds: set[int] = set()

    def hear(self, event: h2.events.Event, now_s: float) -> bool:
        """Take one event into account; whether its sender is still listened to."""
        if isinstance(event, _FREE):
            return True
        if isinstance(event, _MESSAGES) or (isinstance(event, h2.events.DataReceived) and event.data):
            self.spoke()
            return True
        if isinstance(event, h2.events.RemoteSettingsChanged):
            self._kinds |= event.changed_settings.keys()
        self._fill((now_s - self._filled_s) * limits.HTTP2_IDLE_FRAMES_PER_S)
        self._filled_s = now_s
        self._left -= 1
        return self._left >= 0 and len(self._kinds) <= limits.HTTP2_SETTINGS_MAX

    def spoke(self) -> None:
        """Something that matters was said, by them or by us; a window is opened for what we say."""
        self._fill(limits.HTTP2_IDLE_FRAMES_PER_MESSAGE)

    def _fill(self, count: float) -> None:
        self._left = min(self._left + count, limits.HTTP2_IDLE_FRAMES_MAX)
