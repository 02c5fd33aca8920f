"""Measures code: a warm context, beside a local Jupyter kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench_row import Row, p50, timed_ms

from atoll.testing.server import Server

# The template's own jupyter_client and ipykernel, on this machine and outside of any sandbox.
_KERNEL = """
import sys, time, statistics
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="python3")
times = []
for _ in range(int(sys.argv[1])):
    started = time.perf_counter()
    client.execute_interactive("1+1", store_history=True, output_hook=lambda message: None, timeout=30)
    times.append((time.perf_counter() - started) * 1000)
client.stop_channels()
manager.shutdown_kernel(now=True)
print(statistics.median(times))
"""


def code(server: Server, rounds: int) -> Iterator[Row]:
    """`1+1` at the SDK in a warm context."""
    with server.create("code") as sandbox:
        for _ in range(5):
            sandbox.code.run("1+1", check=True)
        ours = [timed_ms(lambda: sandbox.code.run("1+1")) for _ in range(rounds * 10)]
    yield Row("code 1+1", p50(ours), _kernel_ms(server, rounds * 10), "ms", "p50 under 10 ms", p50(ours) < 10)


def _kernel_ms(server: Server, count: int) -> float | None:
    packages = next((server.data / "pool/templates/code/usr/local/lib").glob("python3.*/dist-packages"))
    if f"python3.{sys.version_info[1]}" not in str(packages):
        return None  # its compiled parts are for another interpreter
    environment = {**os.environ, "PYTHONPATH": str(packages), "JUPYTER_RUNTIME_DIR": str(server.data / "jupyter")}
    Path(environment["JUPYTER_RUNTIME_DIR"]).mkdir(exist_ok=True)
    argv = [sys.executable, "-S", "-c", _KERNEL, str(count)]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120, check=True)
    return float(done.stdout.split()[-1])
