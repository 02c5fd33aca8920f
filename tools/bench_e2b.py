"""E2B's Python client on this server, one address for all, beside our own SDK doing the same in the same minute."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bench_row import Row, p50, timed_ms
from bench_warm import pool_server, wait_rest

from atoll import Sandbox
from atoll.testing.server import Server
from atoll.wire import e2bkey

ROOT = Path(__file__).parents[1]
BUDGETS_MS = {"create": 25, "command": 25, "write 1 kB": 15, "read 1 kB": 15, "code": 30}
TEMPLATE = "code"
POOL = 2

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
        box.code.run("1")
        for name, budget_ms in BUDGETS_MS.items():
            theirs: list[float] = []
            ours: list[float] = []
            for _ in range(rounds * (1 if name == "create" else 4)):
                if name == "create":
                    wait_rest(server, TEMPLATE, POOL)
                client.stdin.write(name + "\n")
                client.stdin.flush()
                theirs.append(json.loads(client.stdout.readline()))
                if name == "create":
                    wait_rest(server, TEMPLATE, POOL)
                ours.append(_own(server, box, name))
            budget = f"p50 under {budget_ms} ms"
            yield Row(f"E2B {name}", p50(theirs), p50(ours), "ms", budget, p50(theirs) < budget_ms, "beside our SDK")
        client.stdin.close()


def _own(server: Server, box: Sandbox, name: str) -> float:
    if name == "create":
        made: list[Sandbox] = []
        took_ms = timed_ms(lambda: made.append(server.create(TEMPLATE)))
        made[0].kill()
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
