"""One sandbox's requests alone, then beside two hundred real sandboxes that have connections open: who slows whom.

Each neighbour is a sandbox on gVisor with a program inside that holds five connections through the proxy. First they
are at rest, which is what the budget is about; then each sends one request a second over the first of them. The latter
is two hundred requests a second of work for the same processors, so it is stated and held to nothing. Making them takes
minutes and some ten gigabytes of memory, so this is measured only when it is asked for by name.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
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
_BEGIN = "/tmp/begin"
_NEIGHBOUR = """
import os, socket, time
request = b"GET /x HTTP/1.1\\r\\nHost: good.test:%d\\r\\n\\r\\n"
links = [socket.create_connection(("%s", %d), timeout=60) for _ in range(%d)]
for link in links:
    link.sendall(request)
    link.recv(65536)
os.mkfifo("%s")
print("open", flush=True)
open("%s").close()  # at rest, without looking at the clock, until somebody opens the other end
while True:
    time.sleep(1)
    links[0].sendall(request)
    links[0].recv(65536)
"""


def neighbours(rounds: int, count: int = SANDBOXES) -> Iterator[Row]:
    """The median of a new HTTPS connection and a request on it: alone, and beside others that do ever more."""
    with tempfile.TemporaryDirectory(prefix="atoll-bench-") as folder, upstream.upstream(Path(folder)) as servers:
        with _server(servers) as server, server.create("base", policy=_POLICY) as measured:
            measured.files.write("/tmp/client.py", CLIENT % (upstream.WEB, upstream.TLS_PORT, upstream.TLS_PORT, 100))
            alone = _ask(measured, rounds)
            began_s = time.monotonic()
            others = asyncio.run(_make(server, count - 1))
            made = f"made in {time.monotonic() - began_s:.0f} s"
            idle, idle_note = _among(server, measured, rounds)
            asyncio.run(_each(server, others, _open_connections))
            rest, rest_note = _among(server, measured, rounds)
            asyncio.run(_each(server, others, _look))
            asyncio.run(_each(server, others, _begin))
            busy, busy_note = _among(server, measured, rounds)
            begun_s = time.monotonic()
        gone = f"all gone in {time.monotonic() - begun_s:.0f} s"
    held = "1.5 times alone, and 1 ms"
    opened = f"beside {count}, {CONNECTIONS} connections open each"
    yield Row(f"https beside {count} idle ones", idle, alone, "ms", held, _holds(idle, alone), f"{made}; {idle_note}")
    yield Row(f"https {opened}", rest, alone, "ms", held, _holds(rest, alone), rest_note)
    yield Row(
        f"https beside {count}, a request a second each", busy, alone, "ms", "stated", True, f"{busy_note}; {gone}"
    )


def _holds(beside: float, alone: float) -> bool:
    return beside <= alone * 1.5 + 1


def _among(server: Server, measured: Sandbox, rounds: int) -> tuple[float, str]:
    """The median, and what the server took meanwhile."""
    cpu_s, began_s = _cpu_s(server), time.monotonic()
    median = _ask(measured, rounds)
    share = (_cpu_s(server) - cpu_s) / (time.monotonic() - began_s)
    return median, f"the server: {_weight(server)}, {share:.0%} of one processor"


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


async def _each(server: Server, others: list[str], act: Callable[[AsyncSandbox], Awaitable[None]]) -> None:
    """Until all of them have done it."""
    places = asyncio.Semaphore(_AT_ONCE)

    async def one(sandbox_id: str) -> None:
        async with places:
            await act(await AsyncSandbox.connect(sandbox_id, url=server.url, api_key=server.key))

    async with asyncio.TaskGroup() as tasks:
        for sandbox_id in others:
            tasks.create_task(one(sandbox_id))


async def _open_connections(sandbox: AsyncSandbox) -> None:
    """Each has been used once, and rests."""
    place = (upstream.HTTP_PORT, upstream.WEB, upstream.HTTP_PORT, CONNECTIONS, _BEGIN, _BEGIN)
    process = await sandbox.commands.start(["python3", "-c", _NEIGHBOUR % place])
    said = await anext(aiter(process))  # its first word: all of them are open
    assert isinstance(said, Output), said


async def _look(sandbox: AsyncSandbox) -> None:
    """All of them are open still: it is what was measured."""
    opened = (await sandbox.network.status()).connections_open
    assert opened == CONNECTIONS, (sandbox.id, opened)


async def _begin(sandbox: AsyncSandbox) -> None:
    """From now on, a request a second."""
    await sandbox.commands.run(["sh", "-c", f": > {_BEGIN}"], check=True, timeout_s=60)


def _cpu_s(server: Server) -> float:
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _weight(server: Server) -> str:
    status = Path(f"/proc/{server.pid}/status").read_text()
    resident = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    descriptors = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
    return f"{int(resident) // 1024} MiB, {descriptors} descriptors"
