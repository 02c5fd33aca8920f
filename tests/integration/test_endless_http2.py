"""HTTP/2 that is opened, between peers that send without end or never read, both ways: the server stays small."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import hpack
import pytest

from atoll.model import limits
from atoll.model.limits import MIB
from atoll.testing.server import Server
from tests import http2_acts, upstream
from tests.upstream import WEB, Upstream
from tests.waiting import wait_until

pytestmark = pytest.mark.real

PORT = 7445
LINKS = 3  # of each kind
IDLE = ("pings", "priorities", "strangers")  # what asks for nothing; who says it without end is cut off
# A window for each of them, and what an allocator keeps; before there was a bound, settings alone were fifty MiB each.
BOUND = 2 * len(http2_acts.ACTS) * LINKS * limits.HTTP2_WINDOW_BYTES + 24 * MIB

CLIENT = """
import json, socket, ssl, sys, threading
PORT, LINKS, IDLE = %d, %d, %r
context = ssl.create_default_context()
context.set_alpn_protocols(["h2"])
held, began, cut = [], [], []

def ask(path, method=b"GET"):
    to = context.wrap_socket(socket.create_connection(("good.test", PORT), timeout=60), server_hostname="good.test")
    words = {b":method": method, b":path": path, b":scheme": b"https", b":authority": b"good.test:%%d" %% PORT}
    block = b"".join(literal(*word) for word in words.items())
    window = 0 if path != b"/fine" else 65535
    to.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + settings([(4, window)]) + frame(1, 4, 1, block))
    held.append(to)
    return to

def is_cut(to):
    to.settimeout(20)
    try:
        while to.recv(65536): pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True

def one(name, mine):
    to = ask(b"/deaf" if mine else b"/" + name.encode(), b"POST" if mine else b"GET")
    began.append(name)
    if mine:
        act(to, name, 30.0 if name in IDLE else 2.0)
    if mine and name in IDLE:
        cut.append(name if is_cut(to) else "")

def is_fine():
    to, got = ask(b"/fine"), b""
    for stream in range(3, 203, 2):  # as many priorities as an honest client has for a page of a hundred parts
        to.sendall(frame(2, 0, stream, bytes((0, 0, 0, 0, 15))))
    while b"all is well" not in got and (data := to.recv(65536)):
        got += data
    return b"all is well" in got

print(json.dumps(is_fine()), flush=True)
sys.stdin.readline()
threads = [threading.Thread(target=one, args=(n, m)) for n in ACTS for m in (True, False) for _ in range(LINKS)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps([sorted(began), sorted(cut)]), flush=True)
sys.stdin.readline()
print(json.dumps(is_fine()), flush=True)
"""


class Peers:
    """A server that speaks just enough HTTP/2 to do what the path of a request says; then it never reads again."""

    def __init__(self, certificate: Path) -> None:
        self.acted: list[str] = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._context.set_alpn_protocols(["h2"])
        self._listener = socket.create_server((WEB, PORT))
        self._taken: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for sock in (self._listener, *self._taken):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._taken.append(self._listener.accept()[0])
                threading.Thread(target=self._serve, args=(self._taken[-1],), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        with contextlib.suppress(OSError):
            tls = self._context.wrap_socket(peer, server_side=True)
            self._taken.append(tls)
            tls.sendall(http2_acts.frame(4, 0, 0))
            name = _path(tls).strip("/")
            answer = hpack.Encoder().encode([(":status", "200")])
            tls.sendall(http2_acts.frame(1, 4, 1, answer))
            if name == "fine":
                tls.sendall(http2_acts.frame(0, 1, 1, b"all is well"))
            elif name != "deaf":
                http2_acts.act(tls, name)
            self.acted.append(name)


def _path(tls: ssl.SSLSocket) -> str:
    """That of the first request."""
    file = tls.makefile("rb")
    file.read(24)
    while True:
        head = file.read(9)
        payload = file.read(int.from_bytes(head[:3], "big"))
        if head[3] == 1:
            return {str(name): str(value) for name, value in hpack.Decoder().decode(payload)}[":path"]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Upstream]:
    with upstream.upstream(tmp_path) as running:
        yield running


def resident_bytes(server: Server) -> int:
    status = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in status if line.startswith("VmRSS"))) * 1024


def test_endless_http2_costs_bounded_memory(
    make_server: Callable[..., Server], servers: Upstream, tmp_path: Path
) -> None:
    """Settings of all kinds, pings, priorities, frames of no kind, heads and bodies without end, from both ends.

    The control: an honest request before and after, with as many priorities as a page has parts.
    """
    server = make_server(**servers.settings)
    with (
        contextlib.closing(Peers(tmp_path / "upstream-leaf.pem")) as peers,
        server.create(policy={"allow": [f"good.test:{PORT}"], "inspect": True}) as sandbox,
    ):
        sandbox.files.write("/tmp/client.py", Path(http2_acts.__file__).read_text() + CLIENT % (PORT, LINKS, IDLE))
        client = sandbox.commands.start(["python3", "/tmp/client.py"], stdin=True)
        lines = iter(client)
        assert json.loads(next(lines).data) is True  # type: ignore[union-attr]
        before_bytes = resident_bytes(server)  # with all that one connection makes the server load, once
        client.write("go\n")
        began, cut = json.loads(next(lines).data)  # type: ignore[union-attr]
        assert began == sorted([*http2_acts.ACTS] * 2 * LINKS)
        assert cut == sorted(IDLE * LINKS)
        grown_bytes = resident_bytes(server) - before_bytes
        print(f"grown by {grown_bytes / MIB:.1f} MiB")
        assert grown_bytes < BOUND
        client.write("go\n")
        assert json.loads(next(lines).data) is True  # type: ignore[union-attr]
        wait_until(lambda: {*http2_acts.ACTS, "deaf", "fine"} == set(peers.acted), 20, "every act has come to its end")
        assert resident_bytes(server) - before_bytes < BOUND
