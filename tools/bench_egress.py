"""Requests and downloads through the egress proxy, beside the same client without it, in the same minute."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench_row import Row

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests import upstream
from tests.egress_stage import stage

CLIENT = """
import http.client, json, socket, ssl, statistics, time
context = ssl._create_unverified_context()
def one(path):
    begun = time.perf_counter()
    sock = context.wrap_socket(socket.create_connection(("%s", %d)), server_hostname="good.test")
    link = http.client.HTTPConnection("good.test", %d)
    link.sock = sock
    link.request("GET", path)
    size = len(link.getresponse().read())
    link.close()
    return (time.perf_counter() - begun) * 1000, size
one("/x")
times = [one("/x")[0] for _ in range(%d)]
ms, size = min(one("/bytes/100000000") for _ in range(2))
print(json.dumps([statistics.median(times), size / 1000 / ms]))
"""


def egress(rounds: int) -> Iterator[Row]:
    """HTTPS that is passed on, from the namespace of a sandbox: what is measured is the proxy, not gVisor."""
    code = CLIENT % (upstream.WEB, upstream.TLS_PORT, upstream.TLS_PORT, rounds * 4)
    folder = Path(tempfile.mkdtemp(prefix="atoll-bench-"))
    with upstream.upstream(folder) as servers, stage(folder, servers, "bench") as gate:
        gate.allow(f"good.test:{upstream.TLS_PORT}")
        ours_ms, ours_speed = json.loads(gate.python(code))
        alone = subprocess.run(["/usr/bin/python3", "-c", code], capture_output=True, text=True, check=True, timeout=60)
        beside_ms, beside_speed = json.loads(alone.stdout)
    yield Row("https through the proxy", ours_ms, beside_ms, "ms", "2 ms more than without", ours_ms - beside_ms <= 2)
    half = ours_speed >= beside_speed / 2
    yield Row("download through the proxy", ours_speed, beside_speed, "MB/s", "half of without", half)
