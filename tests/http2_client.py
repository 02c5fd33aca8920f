"""An HTTP/2 client that says exactly what a test wants, also what no honest client says."""

from __future__ import annotations

import socket
import ssl
from collections import defaultdict
from pathlib import Path
from urllib.parse import urlsplit

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings

Head = list[tuple[str, str]]


class Http2Client:
    """One connection. What has come is in `status`, `body`, `ended`, `reset` (by stream) and `goodbye`."""

    def __init__(self, url: str, ca: Path, *, window_bytes: int = 65535, honest: bool = True) -> None:
        address = urlsplit(url)
        context = ssl.create_default_context(cafile=str(ca))
        context.set_alpn_protocols(["h2"])
        plain = socket.create_connection((str(address.hostname), address.port or 443), timeout=20)
        self.socket = context.wrap_socket(plain, server_hostname="localhost")
        assert self.socket.selected_alpn_protocol() == "h2"
        config = h2.config.H2Configuration(
            client_side=True,
            header_encoding="latin-1",
            validate_outbound_headers=honest,
            normalize_outbound_headers=honest,
        )
        self.state = h2.connection.H2Connection(config)
        self.state.local_settings[h2.settings.SettingCodes.INITIAL_WINDOW_SIZE] = window_bytes
        self.state.initiate_connection()
        self.reads_bodies = True
        self.heads: dict[int, dict[str, str]] = {}
        self.body: defaultdict[int, bytes] = defaultdict(bytes)
        self.ended: set[int] = set()
        self.reset: dict[int, int] = {}
        self.goodbye: int | None = None
        self.closed = False
        self.flush()

    def __enter__(self) -> Http2Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def flush(self) -> None:
        data = self.state.data_to_send()
        if data:
            self.socket.sendall(data)

    def ask(self, host: str, path: str = "/", method: str = "GET", *, end: bool = True, **headers: str) -> int:
        """Send the head of a request; the number of its stream."""
        head = [(":method", method), (":scheme", "https"), (":authority", host), (":path", path)]
        return self.ask_raw([*head, *((name.replace("_", "-").lower(), value) for name, value in headers.items())], end)

    def ask_raw(self, head: Head, end: bool = True) -> int:
        stream_id = self.state.get_next_available_stream_id()
        self.state.send_headers(stream_id, head, end_stream=end)
        self.flush()
        return stream_id

    def send(self, stream_id: int, data: bytes, *, end: bool = False) -> None:
        """Send some of a body; waits for the server where the window is full."""
        while data:
            room = min(self.state.local_flow_control_window(stream_id), self.state.max_outbound_frame_size)
            if room <= 0:
                self.hear()
                continue
            self.state.send_data(stream_id, data[:room])
            data = data[room:]
            self.flush()
        if end:
            self.state.end_stream(stream_id)
            self.flush()

    def give_up(self, stream_id: int) -> None:
        self.state.reset_stream(stream_id, h2.errors.ErrorCodes.CANCEL)

    def hear(self) -> None:
        """Take what comes next."""
        data = self.socket.recv(65536)
        self.closed = self.closed or not data
        for event in self.state.receive_data(data):
            self._take(event)
        self.flush()

    def _take(self, event: h2.events.Event) -> None:
        stream_id = getattr(event, "stream_id", 0) or 0
        if isinstance(event, h2.events.ResponseReceived):
            self.heads[stream_id] = {str(name): str(value) for name, value in event.headers or ()}
        elif isinstance(event, h2.events.DataReceived):
            self.body[stream_id] += event.data or b""
            if self.reads_bodies:
                self.state.acknowledge_received_data(event.flow_controlled_length or 0, stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            self.ended.add(stream_id)
        elif isinstance(event, h2.events.StreamReset):
            self.reset[stream_id] = int(event.error_code or 0)
        elif isinstance(event, h2.events.ConnectionTerminated):
            self.goodbye = int(event.error_code or 0)

    def hear_all(self, stream_id: int) -> tuple[int, bytes]:
        """The whole answer of a stream: its status and its body; 0 if the stream was reset."""
        while stream_id not in self.ended and stream_id not in self.reset:
            self.hear()
            assert not self.closed, "the server hung up"
        if stream_id not in self.ended:
            return 0, self.body[stream_id]
        return int(self.heads[stream_id][":status"]), self.body[stream_id]
