"""Servers for sandboxes to reach: HTTP, HTTPS with a test CA, one that speaks first, and a DNS server that can lie.

They listen on addresses that belong to nobody (TEST-NET-3), given to this host's loopback for as long as the tests run.
No traffic leaves it.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import http.server
import itertools
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import h2.config
import h2.connection
import h2.events
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from websockets.utils import accept_key

NETWORK = "203.0.113.0/24"
WEB = "203.0.113.21"  # two names lead here
OTHER = "203.0.113.22"
DNS = "203.0.113.23"
HTTP_PORT, TLS_PORT, BANNER_PORT, H2_PORT = 8080, 8443, 2222, 9443


class _Handler(http.server.BaseHTTPRequestHandler):
    """Says what it was asked, in a form that tests can read."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer in two parts waits 40 ms for the other end's kernel

    def do_GET(self) -> None:
        if self.path.startswith("/bytes/"):
            return self._bytes(int(self.path.split("/")[2]))
        if self.path == "/endless":
            return self._endless()
        if self.path == "/socket":
            return self._socket()
        if self.path.startswith(("/redirect", "/lead/")):
            self.send_response(302)
            rest = self.path.removeprefix("/redirect")
            place = f"other.test:{HTTP_PORT}/secret-place{rest}"
            self.send_header("location", "http://" + (self.path[6:] if self.path.startswith("/lead/") else place))
            self.send_header("content-length", "0")
            return self.end_headers()
        lines = [f"{self.command} {self.path}", *(f"{name}: {value}" for name, value in self.headers.items())]
        self.server.seen.append("\n".join(lines))  # type: ignore[attr-defined]
        self._say("\n".join(lines).encode() + b"\n")

    do_PUT = do_DELETE = do_GET

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        self.server.bodies.append(body)  # type: ignore[attr-defined]
        self._say(f"POST {len(body)}\n".encode())

    def _say(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _bytes(self, size: int) -> None:
        self.send_response(200)
        self.send_header("content-length", str(size))
        self.end_headers()
        block = bytes(65536)
        while size > 0:
            self.wfile.write(block[: min(size, len(block))])
            size -= len(block)

    def _endless(self) -> None:
        self.send_response(200)
        self.end_headers()
        while True:
            self.wfile.write(b"x" * 1000)
            time.sleep(0.02)

    def _socket(self) -> None:
        """A WebSocket that speaks at once, in one piece with its answer, and then says what it hears."""
        self.send_response(101)
        self.send_header("upgrade", "websocket")
        self.send_header("connection", "Upgrade")
        self.send_header("sec-websocket-accept", accept_key(self.headers["sec-websocket-key"]))
        self._headers_buffer.append(b"\r\n" + _frame(b"early"))  # type: ignore[attr-defined]
        self.flush_headers()
        while (head := self.rfile.read(6)) and head[0] & 15 == 1:
            mask, data = head[2:6], self.rfile.read(head[1] & 127)
            self.wfile.write(_frame(bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))))
        self.wfile.write(b"\x88\0")
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


class Web(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], context: ssl.SSLContext | None = None, listener: socket.socket | None = None
    ) -> None:
        """On an address, or on a socket that listens already, such as one in another namespace."""
        self.seen: list[str] = []
        self.bodies: list[bytes] = []
        self._context = context
        super().__init__(address, _Handler, bind_and_activate=listener is None)
        if listener is not None:
            self.socket.close()
            self.socket = listener

    def finish_request(self, request: socket.socket, client_address: tuple[str, int]) -> None:  # type: ignore[override]
        with contextlib.suppress(OSError):
            if self._context is None:
                super().finish_request(request, client_address)
                return
            with self._context.wrap_socket(request, server_side=True) as tls:
                super().finish_request(tls, client_address)

    def handle_error(self, *_: object) -> None:
        pass  # clients that are cut off are what these tests are about


class Upstream:
    """All servers. `names` and `aliases` are what DNS says; `asked` is what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.names = {"good.test": [WEB], "twin.test": [WEB], "other.test": [OTHER], "inner.test": ["10.1.2.3"]}
        self.aliases: dict[str, str] = {}
        self.asked: list[str] = []
        self.ca_file = folder / "upstream-ca.pem"
        self.context = context = _tls(folder, self.ca_file, ["good.test", "twin.test", "other.test", "alias.test"])
        self.web = Web((WEB, HTTP_PORT))
        self.other = Web((OTHER, HTTP_PORT))
        self.tls = Web((WEB, TLS_PORT), context)
        self._dns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._dns.bind((DNS, 53))
        self._banner = socket.create_server((WEB, BANNER_PORT))
        self._h2 = socket.create_server((WEB, H2_PORT))
        self._h2_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._h2_context.load_cert_chain(folder / "upstream-leaf.pem")
        self._h2_context.set_alpn_protocols(["h2"])
        self.h2_seen: list[str] = []
        self._servers = [self.web, self.other, self.tls]
        for server in self._servers:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        threading.Thread(target=self._serve_dns, daemon=True).start()
        threading.Thread(target=self._serve_banner, daemon=True).start()
        threading.Thread(target=self._serve_h2, daemon=True).start()

    @property
    def settings(self) -> dict[str, str]:
        """What a server must be told so that its sandboxes may reach all this, by name and with trust."""
        return {"ATOLL_EGRESS_DNS": DNS, "ATOLL_EGRESS_OPEN": NETWORK, "ATOLL_EGRESS_CA": str(self.ca_file)}

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()
        for sock in (self._dns, self._banner, self._h2):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits there
            sock.close()

    def _serve_dns(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                message, sender = self._dns.recvfrom(600)
                if not message:
                    return
                self._dns.sendto(self._answer(message), sender)

    def _answer(self, message: bytes) -> bytes:
        end, labels = 12, []
        while message[end]:
            labels.append(message[end + 1 : end + 1 + message[end]].decode())
            end += 1 + message[end]
        name, question = ".".join(labels), message[12 : end + 5]
        self.asked.append(name)
        chain = [name]
        while chain[-1] in self.aliases and len(chain) < 8:
            chain.append(self.aliases[chain[-1]])
        found = self.names.get(chain[-1])
        if found is None:
            return message[:2] + b"\x81\x83\0\1\0\0\0\0\0\0" + question
        records = [_record(alias, 5, _encoded(target)) for alias, target in itertools.pairwise(chain)]
        records += [_record(chain[-1], 1, socket.inet_aton(address)) for address in found]
        head = message[:2] + b"\x81\x80\0\1" + len(records).to_bytes(2) + b"\0\0\0\0"
        return head + question + b"".join(records)

    def _serve_banner(self) -> None:
        """As an SSH server does: it speaks first, then echoes."""
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._banner.accept()
                threading.Thread(target=_banner, args=(connection,), daemon=True).start()

    def _serve_h2(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._h2.accept()
                threading.Thread(target=self._speak_h2, args=(connection,), daemon=True).start()

    def _speak_h2(self, connection: socket.socket) -> None:
        """Says what it was asked and how much came with it, or as many bytes as the path says; then a trailer."""
        with (
            connection,
            contextlib.suppress(OSError),
            self._h2_context.wrap_socket(connection, server_side=True) as tls,
        ):
            state = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
            state.initiate_connection()
            heads: dict[int, list[tuple[str, str]]] = {}
            sizes: dict[int, int] = {}
            left: dict[int, bytes] = {}
            tls.sendall(state.data_to_send())
            while data := tls.recv(65536):
                for event in state.receive_data(data):
                    if isinstance(event, h2.events.RequestReceived):
                        heads[event.stream_id], sizes[event.stream_id] = [(str(n), str(v)) for n, v in event.headers], 0
                    elif isinstance(event, h2.events.DataReceived):
                        sizes[event.stream_id] += len(event.data)
                        state.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    elif isinstance(event, h2.events.StreamEnded):
                        said = "\n".join(f"{name}: {value}" for name, value in heads[event.stream_id])
                        self.h2_seen.append(said)
                        path = dict(heads[event.stream_id])[":path"]
                        body = f"{said}\nbody {sizes[event.stream_id]}\n".encode()
                        left[event.stream_id] = bytes(int(path.split("/")[2])) if "/bytes/" in path else body
                        state.send_headers(event.stream_id, [(":status", "200")])
                for stream_id in list(left):
                    _send_h2(state, left, stream_id)
                tls.sendall(state.data_to_send())


def _frame(text: bytes) -> bytes:
    """A short text of a WebSocket's server."""
    return bytes((0x81, len(text))) + text


def _encoded(name: str) -> bytes:
    return b"".join(bytes((len(label),)) + label.encode() for label in name.split(".")) + b"\0"


def _record(name: str, kind: int, data: bytes) -> bytes:
    return _encoded(name) + kind.to_bytes(2) + b"\0\1\0\0\0\5" + len(data).to_bytes(2) + data


def _send_h2(state: h2.connection.H2Connection, left: dict[int, bytes], stream_id: int) -> None:
    while left[stream_id]:
        room = min(state.local_flow_control_window(stream_id), state.max_outbound_frame_size)
        if room <= 0:
            return
        state.send_data(stream_id, left[stream_id][:room])
        left[stream_id] = left[stream_id][room:]
    state.send_headers(stream_id, [("x-trailer", "t")], end_stream=True)
    del left[stream_id]


def _banner(connection: socket.socket) -> None:
    with connection, contextlib.suppress(OSError):
        connection.sendall(b"HELLO\n")
        while data := connection.recv(4096):
            connection.sendall(data)


@contextlib.contextmanager
def upstream(folder: Path) -> Iterator[Upstream]:
    """The servers, on addresses that go when they do. Two runs on one machine take turns."""
    with open(Path(tempfile.gettempdir()) / "atoll-tests-upstream.lock", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        for address in (WEB, OTHER, DNS):
            subprocess.run(["ip", "addr", "replace", f"{address}/32", "dev", "lo"], check=True)
        try:
            servers = Upstream(folder)
            try:
                yield servers
            finally:
                servers.close()
        finally:
            for address in (WEB, OTHER, DNS):
                subprocess.run(["ip", "addr", "del", f"{address}/32", "dev", "lo"], check=False)


def _tls(folder: Path, ca_file: Path, names: list[str]) -> ssl.SSLContext:
    ca_key, leaf_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "upstream test CA")])
    ca = certificate(issuer, issuer, ca_key, ca_key, x509.BasicConstraints(True, None))
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    alternative = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    leaf = certificate(subject, issuer, leaf_key, ca_key, alternative)
    ca_file.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    chain = folder / "upstream-leaf.pem"
    chain.write_bytes(
        leaf_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + leaf.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    return context


def certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        .sign(signer, hashes.SHA256())
    )
