"""Requests and downloads of a client in a sandbox through the proxy, beside the same from bare gVisor's network."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench_row import Row

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench_crowd import crowd

from atoll import Sandbox
from atoll.node.install.layout import Layout
from atoll.node.names import HostNames
from atoll.node.network.netns import Network
from atoll.node.network.plan import OUTER_ADDRESS, Pair
from atoll.testing import scratch
from atoll.testing.server import Server
from tests import upstream

BARE_PORT = 5999
DOWNLOAD_BYTES = 100_000_000
CLIENT = """
import http.client, json, socket, ssl, statistics, sys, time
address, port, rounds, size_wanted = sys.argv[1], *map(int, sys.argv[2:])
context = ssl._create_unverified_context()
def one(path):
    begun = time.perf_counter()
    sock = context.wrap_socket(socket.create_connection((address, port)), server_hostname="good.test")
    link = http.client.HTTPConnection("good.test", port)
    link.sock = sock
    link.request("GET", path)
    answer, size = link.getresponse(), 0
    while data := answer.read(1 << 18):
        size += len(data)
    link.close()
    return (time.perf_counter() - begun) * 1000, size
one("/x")
times = [one("/x")[0] for _ in range(rounds)]
ms, size = one(f"/bytes/{size_wanted}")
print(json.dumps([times, size / 1000 / ms]))
"""


def egress(rounds: int) -> Iterator[Row]:
    """HTTPS that is passed on, both ways in turn, so that a busy machine slows both; then a crowd."""
    layout = Layout.from_environment()
    data = scratch.data_dir_create(layout)
    with tempfile.TemporaryDirectory(prefix="atoll-bench-") as folder, upstream.upstream(Path(folder)) as servers:
        settings = {"ATOLL_EGRESS_DNS": upstream.DNS, "ATOLL_EGRESS_OPEN": upstream.NETWORK}
        server = Server(data, settings)
        server.start()
        try:
            with server.create("base", policy=[f"good.test:{upstream.TLS_PORT}"]) as sandbox:
                yield from _rows(server, servers, sandbox, rounds)
        finally:
            server.close()
            scratch.data_dir_remove(data)
    yield from crowd(rounds)


def _rows(server: Server, servers: upstream.Upstream, sandbox: Sandbox, rounds: int) -> Iterator[Row]:
    sandbox.files.write("/tmp/client.py", CLIENT)
    ours_ms: list[float] = []
    bare_ms: list[float] = []
    ours_speed = bare_speed = 0.0
    with _bare_network(server, servers, sandbox):
        for _ in range(3):
            times, speed = _measure(sandbox, upstream.WEB, upstream.TLS_PORT, rounds)
            ours_ms, ours_speed = ours_ms + times, max(ours_speed, speed)
            times, speed = _measure(sandbox, OUTER_ADDRESS, BARE_PORT, rounds)
            bare_ms, bare_speed = bare_ms + times, max(bare_speed, speed)
    ours, bare = sorted(ours_ms)[len(ours_ms) // 2], sorted(bare_ms)[len(bare_ms) // 2]
    yield Row("https through the proxy", ours, bare, "ms", "2 ms more than without", ours - bare <= 2)
    held = ours_speed >= bare_speed / 2
    yield Row("download through the proxy", ours_speed, bare_speed, "MB/s", "half of bare gVisor's network", held)


def _measure(sandbox: Sandbox, address: str, port: int, rounds: int) -> tuple[list[float], float]:
    argv = ["python3", "/tmp/client.py", address, str(port), str(rounds * 2), str(DOWNLOAD_BYTES)]
    times, speed = json.loads(sandbox.commands.run(argv, check=True, timeout_s=120).stdout)
    return times, speed


@contextmanager
def _bare_network(server: Server, servers: upstream.Upstream, sandbox: Sandbox) -> Iterator[None]:
    """The same HTTPS server at the other end of the sandbox's own wire, past the proxy: gVisor's network alone."""
    pair = Pair.of(HostNames.of(server.data), server.entry_of(sandbox.id)["slot"])
    for chain in ("prerouting", "input"):
        rule = ["nft", "insert", "rule", "inet", "atoll", chain, "tcp", "dport", str(BARE_PORT), "accept"]
        subprocess.run(["ip", "netns", "exec", pair.outer, *rule], check=True)
    network = Network(pair)
    listener = network.listen_tcp(BARE_PORT)
    listener.setblocking(True)
    web = upstream.Web((OUTER_ADDRESS, BARE_PORT), servers.context, listener)
    threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield
    finally:
        web.shutdown()
        web.server_close()
        network.close()
