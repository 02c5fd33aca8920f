"""E2B's Python client on this server, one address for all, beside our own SDK doing the same in the same minute."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench_row import Row, p50, timed_ms
from bench_warm import demand, pool_server, wait_rest

from atoll import Sandbox
from atoll.testing.server import Server
from atoll.wire import e2bkey

ROOT = Path(__file__).parents[1]
BUDGETS_MS = {"create": 25, "command": 25, "write 1 kB": 15, "read 1 kB": 15, "code": 30}
TEMPLATE = "code"
POOL = 2
READY_S_MAX = 120.0  # those with interpreters take longer than those without

# Runs in the environment of E2B's client: one line of JSON for each measurement, on request.
CLIENT = """
import json, sys, time
from e2b_code_interpreter import Sandbox

def timed(act):
    started = time.perf_counter()
    act()
    return (time.perf_counter() - started) * 1000

box = Sandbox.create(timeout=600)
box.run_code("1")
box.commands.run("true")
text = "x" * 1000
acts = {
    "create": lambda: made.append(Sandbox.create(timeout=60)),
    "command": lambda: box.commands.run("true"),
    "write 1 kB": lambda: box.files.write("f", text),
    "read 1 kB": lambda: box.files.read("f"),
    "code": lambda: box.run_code("1+1"),
}
made = []
print("ready", flush=True)
for line in sys.stdin:
    print(json.dumps(timed(acts[line.strip()])), flush=True)
    while made:
        made.pop().kill()
box.kill()
"""


def e2b(rounds: int) -> Iterator[Row]:
    """Each act in turn with both clients, so that a busy machine slows both."""
    with pool_server(POOL) as server:
        yield from _rows(server, rounds)


def _rows(server: Server, rounds: int) -> Iterator[Row]:
    environment = {
        "E2B_API_KEY": e2bkey.spelled(server.key),
        "E2B_API_URL": server.url,
        "E2B_SANDBOX_URL": server.url,
    }
    with (
        subprocess.Popen(
            [_interpreter(), "-c", CLIENT], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as client,
        server.create(TEMPLATE) as box,
    ):
        assert client.stdin is not None
        assert client.stdout is not None
        assert client.stdout.readline() == "ready\n"
        for act in BUDGETS_MS:  # each client has done each once: theirs loads much of itself at first use
            _asked(client, act)
            _own(server, box, act)
        demand(server, TEMPLATE, POOL, READY_S_MAX)
        for name, budget_ms in BUDGETS_MS.items():
            wait_rest(server, TEMPLATE, POOL, within_s=READY_S_MAX)
            theirs: list[float] = []
            ours: list[float] = []
            for _ in range(rounds * (1 if name == "create" else 4)):
                theirs.append(_rested(server, name, partial(_asked, client, name)))
                ours.append(_rested(server, name, partial(_own, server, box, name)))
            budget = f"p50 under {budget_ms} ms"
            yield Row(f"E2B {name}", p50(theirs), p50(ours), "ms", budget, p50(theirs) < budget_ms, "beside our SDK")
        client.stdin.close()


def _rested(server: Server, name: str, act: Callable[[], float]) -> float:
    """What an act takes; a create takes one out of a pool that rests, and is told if it was made on the spot."""
    if name != "create":
        return act()
    wait_rest(server, TEMPLATE, POOL, within_s=READY_S_MAX)
    before = _from_pool(server)
    took_ms = act()
    assert _from_pool(server) == before + 1, "the pool was empty"
    return took_ms


def _from_pool(server: Server) -> float:
    """How many creates the pool has answered."""
    found = re.search(r'^atoll_sandbox_create_seconds_count\{outcome="pool"\} (\S+)$', _metrics(server), re.MULTILINE)
    return float(found[1]) if found else 0.0


def _metrics(server: Server) -> str:
    return server.request("GET", "/metrics").text


def _asked(client: subprocess.Popen[str], name: str) -> float:
    """What an act takes their client, in milliseconds."""
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write(name + "\n")
    client.stdin.flush()
    return float(json.loads(client.stdout.readline()))


def _own(server: Server, box: Sandbox, name: str) -> float:
    if name == "create":
        made: list[Sandbox] = []
        took_ms = timed_ms(lambda: made.append(server.create(TEMPLATE)))
        made[0].kill()
        made[0].close()
        return took_ms
    acts = {
        "command": lambda: box.commands.run("true"),
        "write 1 kB": lambda: box.files.write("f", "x" * 1000),
        "read 1 kB": lambda: box.files.read("f"),
        "code": lambda: box.code.run("1+1"),
    }
    return timed_ms(acts[name])


def _interpreter() -> str:
    pins = ROOT / "tests" / "compat" / "e2b" / "requirements-new.txt"
    install: list[str | Path] = [ROOT / "tools" / "compat_clients.sh", "python", pins]
    folder = subprocess.run(install, capture_output=True, text=True, check=True, timeout=300).stdout.strip()
    return f"{folder}/bin/python"
