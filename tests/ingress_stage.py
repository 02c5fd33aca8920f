"""A server inside a sandbox that says what it got, and the words to reach it from outside."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from typing import Any
from urllib.parse import urlsplit

from atoll import Sandbox
from atoll.testing.server import Server
from tests.waiting import wait_until

# A server that says what it got, streams, echoes and speaks WebSocket, without a package.
SERVER = r"""
import base64, hashlib, http.server, json, socket, socketserver, sys, threading, time

ODD = {
    "304": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: x\r\n\r\n",
    "early": b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "both": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "until-end": b"HTTP/1.0 200 OK\r\n\r\nok",
    "700": b"HTTP/1.1 700 Odd\r\nContent-Length: 0\r\n\r\n",
    "control": b"HTTP/1.1 200 OK\r\nX-A: a\x01b\r\nContent-Length: 0\r\n\r\n",
    "nothing": b"",
    "announced": b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000,
    "short": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nok",
}

GO = threading.Event()

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, body, *headers):
        self.send_response(200)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path.startswith("/ws"):
            return self.websocket()
        if self.path == "/slow":
            GO.clear()
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for part in (b"one", b"two"):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                GO.wait(20)  # the rest only when somebody has seen the first and says so
            self.wfile.write(b"0\r\n\r\n")
            return
        if self.path == "/go":
            GO.set()
            return self.answer(b"gone")
        if self.path == "/redirect":
            self.send_response(302)
            self.send_header("Location", "http://localhost:8000/there?x=1")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.path.startswith("/raw/"):
            self.close_connection = True
            self.wfile.write(ODD[self.path[5:]])
            return
        if self.path == "/big":
            return self.answer(b"x" * 20_000_000)
        told = {"path": self.path, "headers": {name.lower(): value for name, value in self.headers.items()}}
        self.answer(
            json.dumps(told).encode(),
            ("X-Atoll-Inside", "no"),
            ("Set-Cookie", "atoll_port=stolen"),
            ("Set-Cookie", "a=1; Domain=localhost; Path=/"),
            ("X-Own", "yes"),
        )

    do_OPTIONS = do_GET

    def echo(self):
        # Each part of the request is answered before the next has come.
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while length := int(self.rfile.readline(), 16):
            part = self.rfile.read(length).upper()
            self.rfile.readline()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        self.rfile.readline()
        self.wfile.write(b"0\r\n\r\n")

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", "1234")
        self.end_headers()

    def do_POST(self):
        if self.path == "/echo":
            return self.echo()
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            digest, size = hashlib.sha256(), 0
            while length := int(self.rfile.readline(), 16):
                part = self.rfile.read(length)
                self.rfile.readline()
                digest.update(part)
                size += len(part)
            self.rfile.readline()
        else:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            digest, size = hashlib.sha256(data), len(data)
        self.answer(json.dumps({"size": size, "sha256": digest.hexdigest()}).encode())

    def websocket(self):
        key = self.headers["Sec-WebSocket-Key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key).digest()).decode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept)
        self.end_headers()
        self.wfile.write(b"early bytes")
        while data := self.rfile.read1(65536):
            self.wfile.write(data.upper())
        self.close_connection = True

    def log_message(self, *args):
        pass

class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)
        self.request.sendall(b"bye")

socketserver.ThreadingTCPServer.daemon_threads = True
echo = socketserver.ThreadingTCPServer(("0.0.0.0", 5432), Echo)
threading.Thread(target=echo.serve_forever, daemon=True).start()
garbage = socket.create_server(("0.0.0.0", 6000))
def speak():
    while True:
        peer, _ = garbage.accept()
        peer.recv(1000)
        peer.sendall(b"not http at all\r\n\r\n")
        peer.close()
threading.Thread(target=speak, daemon=True).start()
endless = socket.create_server(("0.0.0.0", 6001))
def speak_endlessly():
    while True:
        peer, _ = endless.accept()
        peer.recv(1000)
        try:
            peer.sendall(b"HTTP/1.1 200 OK\r\n")
            while True:
                peer.sendall(b"x-more: " + b"y" * 1000 + b"\r\n")
        except OSError:
            peer.close()
threading.Thread(target=speak_endlessly, daemon=True).start()
loopback = http.server.ThreadingHTTPServer(("127.0.0.1", 8100), Handler)
threading.Thread(target=loopback.serve_forever, daemon=True).start()
http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Handler).serve_forever()
"""


def inside(sandbox: Sandbox) -> Sandbox:
    """The sandbox with the server above running in it."""
    sandbox.files.write("/tmp/server.py", SERVER)
    sandbox.commands.start(["python3", "/tmp/server.py"])
    ready = "import socket; socket.create_connection(('127.0.0.1', 8000)).close()"
    wait_until(lambda: sandbox.commands.run(["python3", "-c", ready]).exit_code == 0, 20, "the server inside")
    return sandbox


Answer = tuple[int, dict[str, str], bytes]


def ask(server: Server, host: str, path: str = "/", method: str = "GET", body: Any = None, **headers: str) -> Answer:
    """A request to the server's address with a Host of one's own, as a browser that resolves the name makes it."""
    address = urlsplit(server.url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=20)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, path, body, {"Host": f"{host}:{address.port}", **named})
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    finally:
        connection.close()


def name_of(sandbox: Sandbox, port: int = 8000) -> str:
    return f"{port}-{sandbox.id}.localhost"


def code_of(answer: Answer) -> tuple[int, str]:
    return answer[0], json.loads(answer[2])["code"]


def handshake(
    server: Server, host: str, path: str, tls: ssl.SSLContext | None = None, upgrade: str = "websocket", **headers: str
) -> tuple[socket.socket, bytes, bytes]:
    """A connection after a WebSocket handshake: itself, the head of the answer, and what came with it."""
    address = urlsplit(server.url)
    connection = socket.create_connection((str(address.hostname), address.port), timeout=10)
    if tls is not None:
        connection = tls.wrap_socket(connection, server_hostname=host)
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: keep-alive, Upgrade", f"Upgrade: {upgrade}"]
    lines += ["Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(4096)
        assert part, data
        data += part
    head, _, rest = data.partition(b"\r\n\r\n")
    return connection, head, rest
