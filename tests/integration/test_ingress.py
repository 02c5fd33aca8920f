"""Ports of real sandboxes from outside: by name, by header, by signed address, by WebSocket, and as raw TCP."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from atoll import Sandbox
from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real

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
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for part in (b"one", b"two", b"three"):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                self.wfile.flush()
                time.sleep(0.3)
            self.wfile.write(b"0\r\n\r\n")
            return
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

    def do_POST(self):
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


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[Sandbox]:
    with server.create() as sandbox:
        yield inside(sandbox)


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


def test_the_signed_address_works_with_curl(server: Server, sandbox: Sandbox) -> None:
    url = sandbox.ports.url(8000)
    assert f"//{name_of(sandbox)}:" in url
    shown = subprocess.run(["curl", "-s", "-L", "-c", "/dev/null", url], capture_output=True, timeout=20, check=True)
    told = json.loads(shown.stdout)
    assert told["path"] == "/"
    assert told["headers"]["host"] == "localhost:8000"


def test_a_private_port_tells_apart_who_knocks(server: Server, sandbox: Sandbox) -> None:
    host = name_of(sandbox)
    assert code_of(ask(server, host)) == (401, "port_private")
    assert code_of(ask(server, host, X_Atoll_Token="1.x")) == (403, "port_link_refused")
    assert code_of(ask(server, host, X_API_Key="atoll_" + "x" * 43)) == (401, "unauthenticated")
    assert ask(server, host, X_API_Key=server.key)[0] == 200
    assert ask(server, host, Authorization=f"Bearer {server.key}")[0] == 200


def test_what_is_wrong_is_told_apart(server: Server, sandbox: Sandbox) -> None:
    missing = "sb" + "0" * 36
    assert code_of(ask(server, f"8000-{missing}.localhost", X_API_Key=server.key)) == (404, "sandbox_not_found")
    assert code_of(ask(server, name_of(sandbox, 8001), X_API_Key=server.key)) == (502, "port_closed")
    assert code_of(ask(server, name_of(sandbox, 999), X_API_Key=server.key)) == (403, "port_reserved")
    assert code_of(ask(server, name_of(sandbox, 6000), X_API_Key=server.key)) == (502, "port_not_http")
    assert code_of(ask(server, name_of(sandbox, 6001), X_API_Key=server.key)) == (502, "port_not_http")
    assert code_of(ask(server, name_of(sandbox, 70000), X_API_Key=server.key)) == (400, "invalid_port")
    ended = server.create()
    ended.kill()
    ended.close()
    assert code_of(ask(server, name_of(ended), X_API_Key=server.key)) == (409, "not_running")


def test_a_server_on_loopback_only_is_reached_too(server: Server, sandbox: Sandbox) -> None:
    host = name_of(sandbox, 8100)
    assert json.loads(ask(server, host, "/x", X_API_Key=server.key)[2])["path"] == "/x"
    assert len(ask(server, host, "/big", X_API_Key=server.key)[2]) == 20_000_000
    connection, head, _ = handshake(server, host, "/ws", X_API_Key=server.key)
    connection.close()
    assert head.startswith(b"HTTP/1.1 101 ")


@pytest.mark.parametrize("odd", ["304", "early", "both", "until-end"])
def test_odd_answers_pass_as_they_are_meant(server: Server, sandbox: Sandbox, odd: str) -> None:
    status, headers, body = ask(server, name_of(sandbox), f"/raw/{odd}", X_API_Key=server.key)
    assert (status, body) == ((304, b"") if odd == "304" else (200, b"ok"))
    assert "link" not in headers


@pytest.mark.parametrize(
    ("odd", "code"),
    [
        ("700", "port_not_http"),
        ("control", "port_not_http"),
        ("nothing", "port_not_http"),
        ("announced", "port_not_http"),
    ],
)
def test_broken_answers_are_reported(server: Server, sandbox: Sandbox, odd: str, code: str) -> None:
    assert code_of(ask(server, name_of(sandbox), f"/raw/{odd}", X_API_Key=server.key)) == (502, code)


def test_an_answer_that_is_cut_off_stays_cut_off(server: Server, sandbox: Sandbox) -> None:
    with pytest.raises(http.client.IncompleteRead):
        ask(server, name_of(sandbox), "/raw/short", X_API_Key=server.key)
    head = ask(server, name_of(sandbox), "/x", "HEAD", X_API_Key=server.key)
    assert head[0] == 501  # the server inside does not know it; the connection is fit for the answer all the same


def test_the_guests_own_port_stays_closed_even_when_it_is_made_public(server: Server, sandbox: Sandbox) -> None:
    sandbox.ports.set_access(999, public=True)
    assert code_of(ask(server, name_of(sandbox, 999))) == (403, "port_reserved")


def test_nothing_of_ours_passes_either_way(server: Server, sandbox: Sandbox) -> None:
    """Positive control: what is the caller's own does pass, and so does what the server inside says of itself."""
    status, headers, body = ask(
        server,
        name_of(sandbox),
        "/p?a=1&b=%20",
        X_API_Key=server.key,
        X_Atoll_Other="x",
        X_Mine="kept",
        Authorization="Basic abc",
        Cookie="atoll_port=1.x; mine=1",
        X_Forwarded_For="1.2.3.4",
        Origin=f"http://{name_of(sandbox)}:{urlsplit(server.url).port}",
    )
    told = json.loads(body)
    assert status == 200
    assert told["path"] == "/p?a=1&b=%20"
    got = told["headers"]
    assert not [name for name in got if name.startswith("x-atoll") or name == "x-api-key"]
    assert (got["x-mine"], got["authorization"], got["cookie"]) == ("kept", "Basic abc", "mine=1")
    assert (got["x-forwarded-for"], got["x-forwarded-proto"]) == ("127.0.0.1", "http")
    assert got["x-forwarded-host"].startswith(name_of(sandbox))
    assert got["origin"] == "http://localhost:8000"
    assert server.key not in body.decode()
    assert headers["x-own"] == "yes"
    assert "x-atoll-inside" not in headers
    assert headers["set-cookie"] == "a=1; Path=/"


def test_by_header_where_no_name_leads_here(server: Server, sandbox: Sandbox) -> None:
    link = sandbox.ports.link(8000)
    assert link.base_url == server.url
    told = json.loads(ask(server, "127.0.0.1", "/x", **_keyword(link.headers))[2])
    assert told["path"] == "/x"
    assert code_of(ask(server, "127.0.0.1", X_Atoll_Sandbox=sandbox.id)) == (400, "invalid_route")


def _keyword(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("-", "_"): value for name, value in headers.items()}


def test_a_browser_goes_on_with_a_cookie(server: Server, sandbox: Sandbox) -> None:
    link = sandbox.ports.link(8000)
    query = urlsplit(link.url).query
    status, headers, _ = ask(server, name_of(sandbox), f"/a/b?x=1&{query}&y=2")
    assert (status, headers["location"]) == (307, "/a/b?x=1&y=2")
    cookie = headers["set-cookie"].partition(";")[0]
    assert "HttpOnly" in headers["set-cookie"]
    assert json.loads(ask(server, name_of(sandbox), "/a/b", Cookie=cookie)[2])["path"] == "/a/b"
    assert code_of(ask(server, name_of(sandbox, 5432), Cookie=cookie)) == (403, "port_link_refused")


def test_links_expire_and_can_be_revoked(server: Server, sandbox: Sandbox) -> None:
    token = sandbox.ports.link(8000, expires_s=1).headers["X-Atoll-Token"]
    lasting = sandbox.ports.link(8000).headers["X-Atoll-Token"]
    assert ask(server, name_of(sandbox), X_Atoll_Token=lasting)[0] == 200
    refused = (403, "port_link_refused")
    wait_until(lambda: ask(server, name_of(sandbox), X_Atoll_Token=token)[0] == 403, 5, "the link expires")
    assert code_of(ask(server, name_of(sandbox), X_Atoll_Token=lasting[:-1] + "x")) == refused
    sandbox.ports.set_access(8000, revoke_links=True)
    assert code_of(ask(server, name_of(sandbox), X_Atoll_Token=lasting)) == refused
    assert ask(server, name_of(sandbox), X_Atoll_Token=sandbox.ports.link(8000).headers["X-Atoll-Token"])[0] == 200


def test_a_port_can_be_made_public_and_private_again(server: Server, sandbox: Sandbox) -> None:
    assert sandbox.ports.set_access(8000, public=True).public
    assert ask(server, name_of(sandbox))[0] == 200
    assert "atoll_token" not in sandbox.ports.url(8000)
    sandbox.ports.set_access(8000, public=False)
    assert code_of(ask(server, name_of(sandbox))) == (401, "port_private")
    assert not sandbox.ports.access(8000).public


def test_the_host_can_be_the_callers_own(server: Server, sandbox: Sandbox) -> None:
    sandbox.ports.set_access(8000, mask_host="")
    told = json.loads(ask(server, name_of(sandbox), X_API_Key=server.key)[2])
    assert told["headers"]["host"] == f"{name_of(sandbox)}:{urlsplit(server.url).port}"
    sandbox.ports.set_access(8000, mask_host="app.example:{port}")
    told = json.loads(ask(server, name_of(sandbox), X_API_Key=server.key)[2])
    assert told["headers"]["host"] == "app.example:8000"
    sandbox.ports.set_access(8000, mask_host="localhost:{port}")
    location = ask(server, name_of(sandbox), "/redirect", X_API_Key=server.key)[1]["location"]
    assert location == "/there?x=1"


def test_answers_are_streamed(server: Server, sandbox: Sandbox) -> None:
    address = urlsplit(server.url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=20)
    connection.request("GET", "/slow", headers={"Host": name_of(sandbox), "X-API-Key": server.key})
    response = connection.getresponse()
    started_s = time.monotonic()
    assert response.read1() == b"one"
    assert time.monotonic() - started_s < 0.25
    assert response.read() == b"twothree"
    connection.close()


def test_large_bodies_pass_both_ways(server: Server, sandbox: Sandbox) -> None:
    data = os.urandom(5_000_000)
    told = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    parts = (data[start : start + 100_000] for start in range(0, len(data), 100_000))
    for body in (data, parts):
        answer = ask(server, name_of(sandbox), "/", "POST", body, X_API_Key=server.key)
        assert json.loads(answer[2]) == told
    assert len(ask(server, name_of(sandbox), "/big", X_API_Key=server.key)[2]) == 20_000_000


def handshake(server: Server, host: str, path: str, **headers: str) -> tuple[socket.socket, bytes, bytes]:
    """A connection after a WebSocket handshake: itself, the head of the answer, and what came with it."""
    address = urlsplit(server.url)
    connection = socket.create_connection((str(address.hostname), address.port), timeout=10)
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: keep-alive, Upgrade", "Upgrade: websocket"]
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


def test_websocket(server: Server, sandbox: Sandbox) -> None:
    connection, head, rest = handshake(server, name_of(sandbox), "/ws", X_API_Key=server.key)
    with connection:
        assert head.startswith(b"HTTP/1.1 101 ")
        expected = hashlib.sha1(b"dGhlIHNhbXBsZSBub25jZQ==258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        assert base64.b64encode(expected) in head
        while len(rest) < len(b"early bytes"):
            rest += connection.recv(100)
        assert rest == b"early bytes"
        for _ in range(3):
            connection.sendall(b"some frame")
            assert connection.recv(100) == b"SOME FRAME"


def test_a_websocket_needs_the_same_right(server: Server, sandbox: Sandbox) -> None:
    connection, head, _ = handshake(server, name_of(sandbox), "/ws")
    connection.close()
    assert head.startswith(b"HTTP/1.1 401 ")
    connection, head, _ = handshake(server, name_of(sandbox), "/plain", X_API_Key=server.key)
    connection.close()
    assert head.startswith(b"HTTP/1.1 200 ")


def test_an_open_connection_ends_with_its_sandbox(server: Server) -> None:
    with server.create() as short:
        inside(short)
        connection, head, _ = handshake(server, name_of(short), "/ws", X_API_Key=server.key)
        assert head.startswith(b"HTTP/1.1 101 ")
        short.kill()
    with connection:
        while data := connection.recv(100):
            assert data == b"early bytes"


def test_traffic_wakes_a_sleeping_sandbox_if_it_may(server: Server) -> None:
    """A caller who may not go in does not wake it either."""
    with server.create(auto_resume=True) as sleeper:
        inside(sleeper)
        for sleep in (sleeper.standby, sleeper.pause):
            asleep = sleep().state
            assert code_of(ask(server, name_of(sleeper))) == (401, "port_private")
            assert sleeper.info().state == asleep
            assert ask(server, name_of(sleeper), X_API_Key=server.key)[0] == 200
            assert sleeper.info().state == "running"
    with server.create() as sleeper:
        sleeper.pause()
        assert code_of(ask(server, name_of(sleeper), X_API_Key=server.key)) == (409, "not_running")


def test_a_head_without_end_is_refused(server: Server) -> None:
    """And the API's own requests are under the same bound."""
    address = urlsplit(server.url)
    with socket.create_connection((str(address.hostname), address.port), timeout=10) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: ")
        connection.settimeout(5)
        wait_until(lambda: _is_closed(connection, b"y" * 16384), 5, "the server hangs up")
    with socket.create_connection((str(address.hostname), address.port), timeout=10) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: " + b"y" * 70_000 + b"\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 431 ")
    assert server.request("GET", "/health").status_code == 200


def _is_closed(connection: socket.socket, data: bytes) -> bool:
    try:
        connection.sendall(data)
    except (ConnectionResetError, BrokenPipeError):
        return True
    return False


def test_forward_makes_it_a_local_port(server: Server, sandbox: Sandbox) -> None:
    """Also the end of one direction is passed on, which many protocols need."""
    environment = {**os.environ, "ATOLL_URL": server.url, "ATOLL_API_KEY": server.key}
    argv = [sys.executable, "-m", "atoll", "forward", sandbox.id, "5432:0"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stderr is not None
        port = int(process.stderr.readline().partition(" ")[0].rpartition(":")[2])
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                connection.sendall(b"hello")
                assert connection.recv(100) == b"hello"
                connection.shutdown(socket.SHUT_WR)
                assert connection.recv(100) == b"bye"
                assert connection.recv(100) == b""
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0


def test_a_tunnel_needs_a_key_and_an_upgrade(server: Server, sandbox: Sandbox) -> None:
    path = f"/v1/sandboxes/{sandbox.id}/ports/5432/tunnel"
    assert server.request("GET", path).json()["code"] == "upgrade_required"
    connection, head, _ = handshake(server, "127.0.0.1", path, Upgrade="atoll-tcp")
    connection.close()
    assert b" 401 " in head or b" 400 " in head


def test_tls_by_the_servers_own_ca(monkeypatch: pytest.MonkeyPatch, make_server: Callable[..., Server]) -> None:
    """Programs that trust the CA accept every name under the domain, and no other."""
    server = make_server(ATOLL_TLS="1")
    assert server.url.startswith("https://")
    ca = str(server.data / "ca" / "ca.pem")
    monkeypatch.setenv("ATOLL_CA", ca)
    with Sandbox.create("base", url=server.url, api_key=server.key) as sandbox:
        inside(sandbox)
        url = sandbox.ports.url(8000)
        assert url.startswith(f"https://{name_of(sandbox)}:")
        argv = ["curl", "-s", "-L", "-c", "/dev/null", "--cacert", ca, url]
        shown = subprocess.run(argv, capture_output=True, timeout=20, check=True)
        assert json.loads(shown.stdout)["headers"]["x-forwarded-proto"] == "https"
        context = ssl.create_default_context(cafile=ca)
        address = urlsplit(server.url)
        with socket.create_connection((str(address.hostname), address.port), timeout=10) as plain:
            with pytest.raises(ssl.SSLCertVerificationError):
                context.wrap_socket(plain, server_hostname="www.example.org")
