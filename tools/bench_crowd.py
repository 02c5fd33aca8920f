"""One sandbox's requests alone, and among two hundred that have connections open: whether they slow each other.

A crowd of real sandboxes does not fit a small machine, and it is the proxy that they share. So each of the two hundred
is a pair of namespaces with its own gate, as every sandbox has them; in its inner namespace five connections are open
through the proxy, and one request a second goes over each namespace's first. The one that is measured is one of them.
"""

from __future__ import annotations

import json
import secrets
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from ipaddress import IPv4Network
from pathlib import Path

import anyio
from anyio.from_thread import start_blocking_portal
from bench_row import Row

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from atoll.model.policy import Policy, compile_policy
from atoll.node.egress.egress import Egress, EgressSettings
from atoll.node.network import netns
from atoll.node.network.plan import Pair
from atoll.wire.network import NetworkOrder
from tests import upstream

SANDBOXES = 200
CONNECTIONS = 5
CLIENT = """
import http.client, json, socket, ssl, sys, time
context = ssl._create_unverified_context()
def one():
    begun = time.perf_counter()
    sock = context.wrap_socket(socket.create_connection(("%s", %d)), server_hostname="good.test")
    link = http.client.HTTPConnection("good.test", %d)
    link.sock = sock
    link.request("GET", "/x")
    link.getresponse().read()
    link.close()
    return (time.perf_counter() - begun) * 1000
one()
print(json.dumps([one() for _ in range(%d)]))
"""
CROWD = """
import select, socket, sys, time
sys.path.insert(0, sys.argv[1])
from atoll.node.network import namespaces
request = b"GET /x HTTP/1.1\\r\\nHost: good.test:%d\\r\\n\\r\\n"
links = []
for name in sys.argv[2:]:
    with namespaces.opened(name) as fd, namespaces.inside(fd):
        made = [socket.socket() for _ in range(%d)]
    for sock in made:
        sock.settimeout(30)
        sock.connect(("%s", %d))
        sock.sendall(request)
        sock.recv(65536)
    links.append(made)
print("open", flush=True)
turn = 0
while not select.select([sys.stdin], [], [], 1 / len(links))[0]:
    sock = links[turn %% len(links)][0]
    sock.sendall(request)
    sock.recv(65536)
    turn += 1
"""


def crowd(rounds: int) -> Iterator[Row]:
    """The median of a new HTTPS connection and a request on it, before the crowd comes and while it is there."""
    code = CLIENT % (upstream.WEB, upstream.TLS_PORT, upstream.TLS_PORT, rounds * 10)
    with tempfile.TemporaryDirectory(prefix="atoll-bench-") as folder:
        with upstream.upstream(Path(folder)), _gates(Path(folder)) as pairs:
            alone = _ask(pairs[0], code)
            with _crowding(pairs[1:]):
                among = _ask(pairs[0], code)
    held = among <= alone * 1.5 + 1
    yield Row(f"https among {SANDBOXES} sandboxes", among, alone, "ms", "1.5 times alone", held)


def _ask(pair: Pair, code: str) -> float:
    argv = ["ip", "netns", "exec", pair.inner, "/usr/bin/python3", "-c", code]
    said = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120).stdout
    return float(statistics.median(json.loads(said)))


@contextmanager
def _gates(folder: Path) -> Iterator[list[Pair]]:
    token = secrets.token_hex(2)
    pairs = [Pair(str(n), f"atollbench-{token}-{n}-in", f"atollbench-{token}-{n}-out") for n in range(SANDBOXES)]
    with start_blocking_portal(backend_options={"use_uvloop": True}) as portal:
        with portal.wrap_async_context_manager(_Opened(pairs, folder)):
            yield pairs


class _Opened:
    """The gates, all in one loop as in a server."""

    def __init__(self, pairs: list[Pair], folder: Path) -> None:
        self._pairs = pairs
        self._folder = folder
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> None:
        settings = EgressSettings(servers=((upstream.DNS, 53),), opened=(IPv4Network(upstream.NETWORK),))
        rules = (f"good.test:{upstream.TLS_PORT}", f"good.test:{upstream.HTTP_PORT}")
        order = NetworkOrder(compile_policy(Policy(allow=rules), {}))
        egress = Egress(settings, self._folder / "network")
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(tasks.cancel_scope.cancel)
        egress.start(tasks)
        for pair in self._pairs:
            self._stack.push_async_callback(netns.pair_remove, pair)
            await netns.pair_create(pair)
            network = netns.Network(pair)
            self._stack.callback(network.close)
            egress.set(pair.slot, order)
            await egress.open(pair.slot, network)

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()


@contextmanager
def _crowding(pairs: list[Pair]) -> Iterator[None]:
    code = CROWD % (upstream.HTTP_PORT, CONNECTIONS, upstream.WEB, upstream.HTTP_PORT)
    source = str(Path(__file__).resolve().parent.parent / "src")
    argv = [sys.executable, "-c", code, source, *(pair.inner for pair in pairs)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "open"
        try:
            yield
        finally:
            process.stdin.close()
            process.wait(30)
