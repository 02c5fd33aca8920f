"""Measures Atoll beside bare runsc, in the same minute and on the same disks, and prints ratios.

    tools/bench.py [NAME ...] [--json]

Absolute times of a shared machine say little; a ratio to something that ran beside it says what is ours. Each row has a
budget; a row over its budget is marked, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from bench_bare import Bare
from bench_code import code
from bench_e2b import e2b
from bench_egress import egress
from bench_empty import empty
from bench_evaluate import evaluate, first_result
from bench_files import many_files
from bench_inside import inside
from bench_neighbours import SANDBOXES, neighbours
from bench_pool import burst, claims, listing
from bench_port import port
from bench_row import Row, p50, timed_ms
from bench_state import PARTS, state

from atoll.node.install.layout import Layout
from atoll.testing import scratch
from atoll.testing.server import Server


@dataclass(frozen=True)
class Bench:
    """What a measurement works with."""

    server: Server
    bare: Bare
    rounds: int
    sandboxes: int
    parts: Sequence[str]


def create(bench: Bench) -> Iterator[Row]:
    """Create without a pool, beside bare create + start + first answer; then where the time goes."""
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(bench.rounds):
        started_s = time.perf_counter()
        sandbox = bench.server.create("base")
        ours.append((time.perf_counter() - started_s) * 1000)
        steps = sandbox.steps_ms
        sandbox.kill()
        bare.append(bench.bare.create_ms())
    ratio = p50(ours) / p50(bare)
    where = ", ".join(f"{step} {ms:.0f}" for step, ms in steps.items())
    yield Row("create", p50(ours), p50(bare), "ms", "1.3 times bare", ratio <= 1.3, where)


def command(bench: Bench) -> Iterator[Row]:
    """The round trip of `true` at the SDK, beside `runsc exec`."""
    with bench.server.create("base") as sandbox:
        argv = ["true"]
        sandbox.commands.run(argv)
        ours = [timed_ms(lambda: sandbox.commands.run(argv)) for _ in range(bench.rounds * 5)]
        box = bench.server.box_of(sandbox.id)
        bare = [timed_ms(lambda: bench.bare.exec_true(box)) for _ in range(bench.rounds)]
    yield Row("command", p50(ours), p50(bare), "ms", "p50 under 15 ms", p50(ours) < 15)


def files(bench: Bench) -> Iterator[Row]:
    """100 MB up and down through the SDK, beside plain TCP into a file inside."""
    size_bytes = 100 * 1000 * 1000
    data = b"x" * size_bytes
    with bench.server.create("base") as sandbox:
        up = [timed_ms(lambda: sandbox.files.write("big", data)) for _ in range(3)]
        down = [timed_ms(lambda: sandbox.files.read_bytes("big")) for _ in range(3)]
        box = bench.server.box_of(sandbox.id)
        plain = [bench.bare.plain_tcp_ms(sandbox, box, data) for _ in range(3)]
    speed = {
        name: size_bytes / 1e6 / (min(times) / 1000) for name, times in (("up", up), ("down", down), ("tcp", plain))
    }
    for name in ("up", "down"):
        yield Row(f"file {name}", speed[name], speed["tcp"], "MB/s", "over 300 MB/s", speed[name] > 300)


def memory(bench: Bench) -> Iterator[Row]:
    """Private memory of an idle sandbox, beside bare runsc with `sleep`."""
    with bench.server.create("base") as sandbox:
        sandbox.commands.run("true")
        time.sleep(1)
        ours = bench.bare.memory_mib(bench.server.box_of(sandbox.id))
    yield Row("memory of an idle sandbox", ours, bench.bare.sleep_memory_mib(), "MiB", "stated", True)


BENCHES: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "create": create,
    "command": command,
    "files": files,
    "many_files": lambda bench: many_files(bench.server, bench.rounds),
    "inside": lambda bench: inside(bench.server, bench.bare, bench.rounds),
    "memory": memory,
    "code": lambda bench: code(bench.server, bench.rounds),
    "evaluate": lambda bench: evaluate(bench.rounds),
    "first_result": lambda bench: first_result(bench.rounds),
    "state": lambda bench: state(bench.rounds, bench.parts),
    "port": lambda bench: port(bench.server, bench.rounds),
    "egress": lambda bench: egress(bench.rounds),
    "e2b": lambda bench: e2b(bench.rounds),
    "claims": lambda bench: claims(bench.rounds),
    "burst": lambda bench: burst(bench.rounds),
    "empty": lambda bench: empty(bench.rounds),
    "listing": lambda bench: listing(bench.rounds),
}
BY_NAME_ONLY: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "neighbours": lambda bench: neighbours(bench.rounds, bench.sandboxes),
}
"""Those that take minutes."""


@contextmanager
def prepared(rounds: int, sandboxes: int, parts: Sequence[str]) -> Iterator[Bench]:
    layout = Layout.from_environment()
    folder = scratch.data_dir_create(layout)
    server = Server(folder, {})
    try:
        server.start()
        with Bare.open(layout, folder) as bare:
            yield Bench(server, bare, rounds, sandboxes, parts)
    finally:
        server.close()
        scratch.data_dir_remove(folder)


def show(row: Row) -> None:
    ratio = f"{row.ours / row.beside:6.2f}x" if row.beside else ""
    beside = f"{row.beside:9.1f}" if row.beside is not None else ""
    mark = "ok  " if row.held else "OVER"
    print(f"{mark}  {row.name:28} {row.ours:9.1f} {row.unit:5} beside {beside} {ratio}  ({row.budget})")
    if row.note:
        print(f"      {row.note}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="which measurements; all that take seconds if none is named")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--sandboxes", type=int, default=SANDBOXES, help="how many `neighbours` makes")
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS, help="which of `state`; all if none is named"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.names) - set(BENCHES | BY_NAME_ONLY):
        parser.error(
            f"no such measurement: {', '.join(sorted(unknown))}; there are {', '.join(BENCHES | BY_NAME_ONLY)}"
        )
    rows: list[Row] = []
    with prepared(options.rounds, options.sandboxes, options.parts) as bench:
        for name in options.names or BENCHES:
            for row in (BENCHES | BY_NAME_ONLY)[name](bench):
                rows.append(row)
                if not options.json:
                    show(row)
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    return 0 if all(row.held for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
