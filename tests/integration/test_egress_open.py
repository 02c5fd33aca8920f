"""Connections that stay open while something changes: policies, rules for requests, values of secrets."""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from atoll.model import limits
from atoll.model.policy import HttpRule
from atoll.model.secret import Grant, Hidden, Secret
from tests.egress_stage import BOX, Stage, stage
from tests.upstream import BANNER_PORT, H2_PORT, HTTP_PORT, TLS_PORT, Upstream
from tests.waiting import wait_until

pytestmark = pytest.mark.real

PLACEHOLDER = "atoll-secret-" + "0123456789abcdef" * 2
CURL = ("curl", "-sN")
OPAQUE = f"""
import socket
link = socket.create_connection(("good.test", {BANNER_PORT}))
link.sendall(link.recv(6) * 1000)
while link.recv(100): pass
"""
DEAF = f"""
import socket, time
link = socket.create_connection(("good.test", {HTTP_PORT}))
link.sendall(b"GET /bytes/50000000 HTTP/1.1\\r\\nHost: good.test:{HTTP_PORT}\\r\\n\\r\\n")
time.sleep(60)
"""
OPEN: dict[str, tuple[int, bool, tuple[str, ...]]] = {
    "requests in plain": (HTTP_PORT, False, (*CURL, f"http://good.test:{HTTP_PORT}/endless")),
    "TLS as it is": (TLS_PORT, False, (*CURL, "--cacert", "UPSTREAM", f"https://good.test:{TLS_PORT}/endless")),
    "opened TLS": (TLS_PORT, True, (*CURL, "--cacert", "OURS", f"https://good.test:{TLS_PORT}/endless")),
    "opened HTTP/2": (H2_PORT, True, (*CURL, "--http2", "-T.", "--cacert", "OURS", f"https://good.test:{H2_PORT}/up")),
    "what is neither": (BANNER_PORT, False, ("/usr/bin/python3", "-c", OPAQUE)),
    "a reader that is deaf": (HTTP_PORT, False, ("/usr/bin/python3", "-c", DEAF)),
}


@pytest.fixture
def gate(servers: Upstream, tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path, servers, secrets.token_hex(2)) as opened:
        yield opened


def authority(gate: Stage, folder: Path) -> str:
    """A file with the sandbox's own authority."""
    known = gate.egress.inside(BOX)
    assert known is not None
    (folder / "ca.pem").write_text(known["ca"])
    return str(folder / "ca.pem")


@contextmanager
def running(gate: Stage, *argv: str) -> Iterator[subprocess.Popen[str]]:
    process = gate.start(*argv)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("kind", OPEN)
def test_a_tighter_policy_cuts_what_is_open_and_one_that_allows_it_does_not(
    gate: Stage, servers: Upstream, tmp_path: Path, kind: str
) -> None:
    """Within a second, for the client too, if it listens."""
    port, inspect, argv = OPEN[kind]
    gate.allow(f"good.test:{port}", inspect=inspect)
    files = {"UPSTREAM": str(servers.ca_file), "OURS": authority(gate, tmp_path) if inspect else ""}
    with running(gate, *(files.get(word, word) for word in argv)) as client:
        assert client.stdin is not None
        client.stdin.write("x" * 10_000)
        client.stdin.flush()
        least = 100_000 if kind == "a reader that is deaf" else 1000  # more than its questions to DNS
        wait_until(lambda: gate.status().bytes_up + gate.status().bytes_down > least, 5)
        gate.allow(f"good.test:{port}", "other.test", inspect=inspect)
        time.sleep(0.1)
        assert (gate.status().connections_open, client.poll()) == (1, None), "what still allows it cuts nothing"
        begun_s = time.monotonic()
        gate.allow("other.test:8080", inspect=inspect)
        wait_until(lambda: gate.status().connections_open == 0, 1)
        if kind != "a reader that is deaf":
            assert client.wait(5) != 0
        assert time.monotonic() - begun_s < 1
        event = gate.last()
        assert (event.allowed, event.reason, event.port) == (False, "policy_changed", port)


def test_opened_http2_needs_its_places(gate: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control is one place more, and they come back."""
    gate.allow(f"good.test:{H2_PORT}", inspect=True)
    call = (f"https://good.test:{H2_PORT}/x", "--http2", "--cacert", authority(gate, tmp_path))
    monkeypatch.setattr(limits, "EGRESS_PLACES_MAX", limits.EGRESS_HTTP2_PLACES - 1)
    assert "/x" not in gate.curl(*call)
    assert gate.last().reason == "too_many_connections"
    monkeypatch.setattr(limits, "EGRESS_PLACES_MAX", limits.EGRESS_HTTP2_PLACES)
    for _ in range(2):
        assert ":path: /x" in gate.curl(*call)
        assert gate.last().allowed


# --- WebSockets ---

SOCKET = """
import socket, ssl, sys
from websockets.sync.client import connect
PORT, CA = {port}, {ca!r}
tls = ssl.create_default_context(cafile=CA) if CA else None
with connect(("wss" if CA else "ws") + f"://good.test:{{PORT}}/socket", ssl=tls, proxy=None) as link:
    heard = [link.recv()]
    for word in ("one", "two"):
        link.send(word)
        heard.append(link.recv())
print(*heard, flush=True)
link = socket.create_connection(("good.test", PORT))
link = tls.wrap_socket(link, server_hostname="good.test") if tls else link
head = f"GET /socket HTTP/1.1\\r\\nHost: good.test:{{PORT}}\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n"
head += "Sec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\\r\\n\\r\\n"
link.sendall(head.encode() + b"\\x81\\x86\\0\\0\\0\\0sooner")
def hear(word):
    data = b""
    while not data.endswith(word): data += link.recv(100)
    return data.partition(b"\\r\\n\\r\\n")[2]
print(hear(b"sooner"), flush=True)
sys.stdin.readline()
link.sendall(b"\\x81\\x85\\0\\0\\0\\0still")
hear(b"still")
print("still", flush=True)
try:
    while link.recv(100): pass
except OSError:
    pass
print("cut", flush=True)
"""


@pytest.mark.parametrize("port", [HTTP_PORT, TLS_PORT])
def test_a_websocket_goes_through_whole_and_is_cut_when_it_is_not_allowed_any_more(
    gate: Stage, tmp_path: Path, port: int
) -> None:
    """By a client of a real library; then by one that says a frame in one piece with its request, as the server does.

    The control is another rule, by which it is still allowed.
    """

    def rule(**fields: Any) -> None:
        gate.allow(f"good.test:{port}", http=(HttpRule("good.test", **fields),))

    rule(path_prefixes=("/socket",))
    ca = authority(gate, tmp_path) if port == TLS_PORT else ""
    with running(gate, sys.executable, "-c", SOCKET.format(port=port, ca=ca)) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        assert client.stdout.readline() == "early one two\n"
        assert client.stdout.readline() == repr(b"\x81\x05early\x81\x06sooner") + "\n"
        wait_until(lambda: len([event for event in gate.status().events if event.kind == "connection"]) == 1, 5)
        before, [ended] = gate.status(), [event for event in gate.status().events if event.kind == "connection"]
        assert ended.allowed
        assert ended.bytes_up > 200
        assert ended.bytes_down > 100
        rule(methods=("GET",))
        client.stdin.write("\n")
        client.stdin.flush()
        assert client.stdout.readline() == "still\n", "what still allows it cuts nothing"
        after = gate.status()
        assert (after.bytes_up - before.bytes_up, after.bytes_down - before.bytes_down) == (11, 7), "all is counted"
        begun_s = time.monotonic()
        rule(path_prefixes=("/else",))
        assert client.stdout.readline() == "cut\n"
        assert time.monotonic() - begun_s < 1
    assert gate.last().reason == "policy_changed"


# --- values of secrets ---

KEPT = """
import httpx2, sys
with httpx2.Client(http2={http2}, verify={ca!r}) as client:
    for _ in range(3):
        answer = client.get("https://good.test:{port}/x", headers={{"Authorization": {placeholder!r}}})
        said = [line for line in answer.text.splitlines() if line.lower().startswith("authorization")]
        print(answer.http_version, *said, flush=True)
        sys.stdin.readline()
"""


@pytest.mark.parametrize(("port", "version"), [(TLS_PORT, "HTTP/1.1"), (H2_PORT, "HTTP/2")])
def test_a_connection_that_is_kept_uses_the_new_value_at_its_next_request(
    gate: Stage, tmp_path: Path, port: int, version: str
) -> None:
    secret = Secret("TOKEN", (f"good.test:{port}",)).checked()

    def put(value: str) -> None:
        grants = (Grant(secret, secret.rules(), PLACEHOLDER, Hidden(value)),)
        gate.allow(f"good.test:{port}", grants=grants, inspect=True)

    put("canary-the-first")
    words = {"http2": version == "HTTP/2", "port": port, "ca": authority(gate, tmp_path), "placeholder": PLACEHOLDER}
    with running(gate, sys.executable, "-c", KEPT.format(**words)) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        for value in ("canary-the-first", "canary-the-second", ""):
            if value:
                put(value)
            else:
                gate.allow(f"good.test:{port}", inspect=True)
            client.stdin.write("\n" if value != "canary-the-first" else "")
            client.stdin.flush()
            said = client.stdout.readline().strip()
            assert said.lower() == f"{version} authorization: {value or PLACEHOLDER}".lower()
            status = gate.status()
            assert (status.connections_open, status.connections_total) == (1, 1), "it is the same connection"
