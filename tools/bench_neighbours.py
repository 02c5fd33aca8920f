"""One sandbox's requests alone, then among two hundred real sandboxes that have connections open: who slows whom.

Each neighbour is a sandbox on gVisor with a program inside that holds five connections through the proxy and sends one
request a second over the first of them. Making them takes minutes and some ten gigabytes of memory, so this is measured
only when it is asked for by name.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench_crowd import CLIENT, CONNECTIONS
from bench_row import Row, p50

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from atoll import AsyncSandbox, Sandbox
from atoll.client import Output
from atoll.node.install.layout import Layout
from atoll.testing import scratch
from atoll.testing.server import Server
from tests import upstream

SANDBOXES = 200
_AT_ONCE = 3  # two processors; more starts side by side only slow each other down
_POLICY = [f"good.test:{upstream.TLS_PORT}", f"good.test:{upstream.HTTP_PORT}"]
_NEIGHBOUR = """
import socket, time
request = b"GET /x HTTP/1.1\\r\\nHost: good.test:%d\\r\\n\\r\\n"
links = [socket.create_connection(("%s", %d), timeout=60) for _ in range(%d)]
for link in links:
    link.sendall(request)
    link.recv(65536)
print("open", flush=True)
while True:
    time.sleep(1)
    links[0].sendall(request)
    links[0].recv(65536)
"""


def neighbours(rounds: int, count: int = SANDBOXES) -> Iterator[Row]:
    """The median of a new HTTPS connection and a request on it: alone, beside idle ones, and beside busy ones."""
    with tempfile.TemporaryDirectory(prefix="atoll-bench-") as folder, upstream.upstream(Path(folder)) as servers:
        with _server(servers) as server, server.create("base", policy=_POLICY) as measured:
            measured.files.write("/tmp/client.py", CLIENT % (upstream.WEB, upstream.TLS_PORT, upstream.TLS_PORT, 100))
            alone = _ask(measured, rounds)
            began_s = time.monotonic()
            others = asyncio.run(_make(server, count - 1))
            made_s = time.monotonic() - began_s
            idle = _ask(measured, rounds)
            asyncio.run(_open_connections(server, others))
            cpu_s, began_s = _cpu_s(server), time.monotonic()
            among = _ask(measured, rounds)
            share = (_cpu_s(server) - cpu_s) / (time.monotonic() - began_s)
            note = f"made in {made_s:.0f} s; the server: {_weight(server)}, {share:.0%} of one processor"
            begun_s = time.monotonic()
        note += f"; all gone in {time.monotonic() - begun_s:.0f} s"
    held = "1.5 times alone, and 1 ms"
    yield Row(f"https beside {count} idle ones", idle, alone, "ms", held, idle <= alone * 1.5 + 1)
    yield Row(f"https among {count} sandboxes", among, alone, "ms", held, among <= alone * 1.5 + 1, note)


@contextmanager
def _server(servers: upstream.Upstream) -> Iterator[Server]:
    data = scratch.data_dir_create(Layout.from_environment())
    server = Server(data, servers.settings | {"ATOLL_MEMORY_OVERCOMMIT": "100"})
    try:
        server.start()
        yield server
    finally:
        server.close()
        scratch.data_dir_remove(data)


def _ask(sandbox: Sandbox, rounds: int) -> float:
    times: list[float] = []
    for _ in range(max(1, rounds // 3)):
        times += json.loads(sandbox.commands.run(["python3", "/tmp/client.py"], check=True, timeout_s=60).stdout)
    return p50(times)


async def _make(server: Server, count: int) -> list[str]:
    places = asyncio.Semaphore(_AT_ONCE)

    async def one() -> str:
        async with places:
            made = await AsyncSandbox.create("base", policy=_POLICY, timeout_s=3600, url=server.url, api_key=server.key)
            return made.id

    async with asyncio.TaskGroup() as tasks:
        made = [tasks.create_task(one()) for _ in range(count)]
    return [task.result() for task in made]


async def _open_connections(server: Server, others: list[str]) -> None:
    """Until all of them have all of theirs."""
    places = asyncio.Semaphore(_AT_ONCE)
    code = _NEIGHBOUR % (upstream.HTTP_PORT, upstream.WEB, upstream.HTTP_PORT, CONNECTIONS)

    async def one(sandbox_id: str) -> None:
        async with places:
            sandbox = await AsyncSandbox.connect(sandbox_id, url=server.url, api_key=server.key)
            process = await sandbox.commands.start(["python3", "-c", code])
            said = await anext(aiter(process))  # its first word: all of them are open
            assert isinstance(said, Output), said

    async with asyncio.TaskGroup() as tasks:
        for sandbox_id in others:
            tasks.create_task(one(sandbox_id))


def _cpu_s(server: Server) -> float:
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _weight(server: Server) -> str:
    status = Path(f"/proc/{server.pid}/status").read_text()
    resident = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    descriptors = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
    return f"{int(resident) // 1024} MiB, {descriptors} descriptors"
