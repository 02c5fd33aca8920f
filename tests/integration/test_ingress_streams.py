"""Streams through ports of real sandboxes: long bodies, WebSocket, and raw TCP."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from atoll import Sandbox
from atoll.testing.server import Server
from tests.ingress_stage import ask, handshake, inside, name_of
from tests.waiting import wait_until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[Sandbox]:
    with server.create() as sandbox:
        yield inside(sandbox)


def test_answers_are_streamed(server: Server, sandbox: Sandbox) -> None:
    """The server inside goes on only when it is told that its first words have been heard."""
    address = urlsplit(server.url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=20)
    connection.request("GET", "/slow", headers={"Host": name_of(sandbox), "X-API-Key": server.key})
    response = connection.getresponse()
    assert response.read1() == b"one"
    assert ask(server, name_of(sandbox), "/go", X_API_Key=server.key)[2] == b"gone"
    assert response.read() == b"two"
    connection.close()


def test_a_caller_who_leaves_is_noticed_while_the_server_inside_is_silent(server: Server, sandbox: Sandbox) -> None:
    """It says one word and then waits for twenty seconds; the visit is over, and in the log, long before that."""
    address = urlsplit(server.url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=20)
    connection.request("GET", "/slow", headers={"Host": name_of(sandbox, 8100), "X-API-Key": server.key})
    assert connection.getresponse().read1() == b"one"
    connection.close()

    def is_over() -> bool:
        answer = server.request("GET", f"/v1/events?target={sandbox.id}&action=ingress.*&limit=1000")
        told = [event["result"] for event in answer.json()["items"] if event["detail"].get("port") == "8100"]
        return bool(set(told) - {"begun"})

    wait_until(is_over, 15, "the visit is over")


def test_bodies_are_streamed_while_they_are_answered(server: Server, sandbox: Sandbox) -> None:
    address = urlsplit(server.url)
    with socket.create_connection((str(address.hostname), address.port), timeout=10) as connection:
        head = f"POST /echo HTTP/1.1\r\nHost: {name_of(sandbox)}\r\nX-API-Key: {server.key}\r\n"
        connection.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        for word in (b"one", b"two", b"six"):
            connection.sendall(b"3\r\n" + word + b"\r\n")
            said = b""
            while word.upper() not in said:
                part = connection.recv(4096)
                assert part, said
                said += part
        connection.sendall(b"0\r\n\r\n")


def test_large_bodies_pass_both_ways(server: Server, sandbox: Sandbox) -> None:
    data = os.urandom(5_000_000)
    told = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    parts = (data[start : start + 100_000] for start in range(0, len(data), 100_000))
    for body in (data, parts):
        answer = ask(server, name_of(sandbox), "/", "POST", body, X_API_Key=server.key)
        assert json.loads(answer[2]) == told
    assert len(ask(server, name_of(sandbox), "/big", X_API_Key=server.key)[2]) == 20_000_000


def test_websocket(server: Server, sandbox: Sandbox) -> None:
    connection, head, rest = handshake(server, name_of(sandbox), "/ws", X_API_Key=server.key)
    with connection:
        assert head.startswith(b"HTTP/1.1 101 ")
        expected = hashlib.sha1(b"dGhlIHNhbXBsZSBub25jZQ==258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        assert base64.b64encode(expected) in head
        while len(rest) < len(b"early bytes"):
            rest += connection.recv(100)
        assert rest == b"early bytes"
        for asleep in (False, False, True):
            if asleep:  # what comes through a connection that is open wakes it, too
                sandbox.standby()
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
    connection, head, _ = handshake(server, "127.0.0.1", path, upgrade="atoll-tcp")
    connection.close()
    assert b" 401 " in head or b" 400 " in head
