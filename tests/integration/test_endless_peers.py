"""Peers that send without end while nobody reads, in both directions: the server holds them up, and stays small."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from atoll.model.limits import MIB
from atoll.testing.server import Server
from tests import upstream
from tests.upstream import WEB, Upstream
from tests.waiting import wait_until

pytestmark = pytest.mark.real

LOUD, DEAF, LOUD_TLS, DEAF_TLS = 7001, 7002, 7443, 7444
LINKS = 2  # of each kind in each direction
SIZE = 24 * MIB  # what each would send: more than all kernels on the way can hold for it
OPPORTUNITY = LINKS * 3 * SIZE  # in each direction
BOUND = 24 * MIB  # for all twelve together, with what an allocator keeps; 7 were measured, and 288 could come

# Bytes as they are (to an address), HTTP that is looked at (to a name), and TLS that is opened.
CLIENT = """
import json, socket, ssl, sys, threading
SIZE, LINKS, WEB = %d, %d, %r
HEAD = "%%s /x HTTP/1.1\\r\\nHost: good.test:%%d\\r\\nContent-Length: %%d\\r\\n\\r\\n"
KINDS = {"bytes": (WEB, 7001, 7002), "http": ("good.test", 7001, 7002), "tls": ("good.test", 7443, 7444)}
context = ssl.create_default_context()
sent, asked = dict.fromkeys(KINDS, 0), {kind: [] for kind in KINDS}

def link(kind, port):
    made = socket.create_connection((KINDS[kind][0], port), timeout=60)
    return context.wrap_socket(made, server_hostname="good.test") if kind == "tls" else made

def send(kind):
    port, block, left = KINDS[kind][2], b"\\0" * 65536, SIZE
    to = link(kind, port)
    held.append(to)
    if kind != "bytes":
        to.sendall((HEAD %% ("POST", port, SIZE)).encode())
    to.settimeout(2)
    try:
        while left > 0:
            done = to.send(block)
            left -= done
            sent[kind] += done
    except (TimeoutError, ssl.SSLWantWriteError):
        pass  # nobody takes any more

def ask(kind):
    port = KINDS[kind][1]
    to = link(kind, port)
    to.sendall(b"\\0now\\n" if kind == "bytes" else (HEAD %% ("GET", port, 0)).encode())
    asked[kind].append(to)

held = []
threads = [threading.Thread(target=act, args=(kind,)) for kind in KINDS for act in (ask, send) for _ in range(LINKS)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps(sent), flush=True)
sys.stdin.readline()
got = {}
for kind, links in asked.items():
    got[kind] = 0
    while got[kind] < SIZE and (data := links[0].recv(1 << 20)):
        got[kind] += len(data)
print(json.dumps(got), flush=True)
"""


class Peers:
    """Servers that send without looking, and servers that never read; each in plain and with TLS."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.moved = 0
        self.taken: list[socket.socket] = []
        self._context = context
        self._listeners = [socket.create_server((WEB, port)) for port in (LOUD, DEAF, LOUD_TLS, DEAF_TLS)]
        for listener in self._listeners:
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def close(self) -> None:
        for sock in (*self._listeners, *self.taken):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits there
            sock.close()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                self.taken.append(listener.accept()[0])
                threading.Thread(target=self._serve, args=(listener, self.taken[-1]), daemon=True).start()

    def _serve(self, listener: socket.socket, peer: socket.socket) -> None:
        port = listener.getsockname()[1]
        with contextlib.suppress(OSError):
            if port in (LOUD_TLS, DEAF_TLS):
                peer = self._context.wrap_socket(peer, server_side=True)
                self.taken.append(peer)
            if port in (LOUD, LOUD_TLS):
                peer.recv(65536)
                peer.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % SIZE)
                for _ in range(SIZE // 65536):
                    peer.sendall(bytes(65536))
                    self.moved += 65536


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Upstream]:
    with upstream.upstream(tmp_path) as running:
        yield running


@pytest.fixture
def peers(servers: Upstream) -> Iterator[Peers]:
    with contextlib.closing(Peers(servers.context)) as peers:
        yield peers


def resident_bytes(server: Server) -> int:
    status = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in status if line.startswith("VmRSS"))) * 1024


def still(number: Callable[[], int], for_s: float) -> Callable[[], bool]:
    """Whether a number has not changed for so long."""
    last, since_s = -1, 0.0

    def is_still() -> bool:
        nonlocal last, since_s
        if number() != last:
            last, since_s = number(), time.monotonic()
        return time.monotonic() - since_s > for_s

    return is_still


def test_endless_peers_cost_bounded_memory(make_server: Callable[..., Server], servers: Upstream, peers: Peers) -> None:
    """Twelve connections that could bring hundreds of megabytes. The control: what was held comes when it is read."""
    server = make_server(**servers.settings)
    ports = f"{LOUD},{DEAF},{LOUD_TLS},{DEAF_TLS}"
    policy = {"allow": [f"{WEB}:{ports}", f"good.test:{ports}"], "inspect": True}
    with server.create(policy=policy) as sandbox:
        sandbox.files.write("/tmp/client.py", CLIENT % (SIZE, LINKS, WEB))
        before_bytes = resident_bytes(server)
        client = sandbox.commands.start(["python3", "/tmp/client.py"], stdin=True)
        lines = iter(client)
        sent = json.loads(next(lines).data)  # type: ignore[union-attr]
        wait_until(still(lambda: peers.moved, 1.0), 60, "nobody takes any more")
        grown_bytes = resident_bytes(server) - before_bytes
        assert grown_bytes < BOUND
        assert all(0 < size < LINKS * SIZE for size in sent.values()), "held up, each of them"
        assert 0 < peers.moved < OPPORTUNITY
        client.write("go\n")
        got = json.loads(next(lines).data)  # type: ignore[union-attr]
        assert all(size >= SIZE for size in got.values()), "and goes on when somebody reads"
        assert resident_bytes(server) - before_bytes < BOUND
