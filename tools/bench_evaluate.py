"""Measures code in sandboxes of its own: the first result, from the pool and without, and evaluations, one and many."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

from bench_bare import Bare
from bench_podman import podman
from bench_row import Row, p50, timed_ms
from bench_warm import bare_restore_ms, demand, emptied, pool_server, wait_rest

from atoll import evaluate as atoll_evaluate
from atoll.node.install.layout import Layout
from atoll.testing.server import Server

AT_ONCE = 8
MANY = 100
TEMPLATE = "code"
READY_S_MAX = 120.0  # eight with their interpreters take longer than one without
PROGRAM = ("/usr/bin/python3", "-c", "print(1)")


def _first_ms(server: Server) -> tuple[str, float]:
    """Create a sandbox and have its first Python result: by which way, and in what time."""
    started_s = time.perf_counter()
    sandbox = server.create(TEMPLATE)
    assert sandbox.code.run("1+1").text == "2"
    taken_ms = (time.perf_counter() - started_s) * 1000
    sandbox.kill()
    sandbox.close()
    return sandbox.way, taken_ms


def first_result(rounds: int) -> Iterator[Row]:
    """From the pool; and right after the last of it was taken, beside a bare restore of the same image."""
    pooled: list[float] = []
    empty: list[float] = []
    bare_ms: list[float] = []
    with pool_server(2) as server, Bare.open(Layout.from_environment(), server.data) as bare:
        demand(server, TEMPLATE, 2, READY_S_MAX)
        for _ in range(rounds):
            wait_rest(server, TEMPLATE, 2, 1, READY_S_MAX)
            way, taken_ms = _first_ms(server)
            assert way == "pool", way
            pooled.append(taken_ms)
            wait_rest(server, TEMPLATE, 2, 1, READY_S_MAX)
            with emptied(server, TEMPLATE):
                way, taken_ms = _first_ms(server)
            assert way == "shell", way
            empty.append(taken_ms)
            bare_ms.append(bare_restore_ms(bare, server, TEMPLATE))
    yield Row("first result, pool", p50(pooled), None, "ms", "p50 under 25 ms", p50(pooled) < 25)
    held = p50(empty) <= 1.3 * p50(bare_ms)
    yield Row("first result, empty pool", p50(empty), p50(bare_ms), "ms", "1.3 times bare restore", held)


def evaluate(rounds: int) -> Iterator[Row]:
    """`print(1)` in a sandbox of its own, alone; then a hundred, eight at a time, beside runsc and podman alone."""
    with pool_server(2) as server:
        demand(server, TEMPLATE, 2, READY_S_MAX)
        alone = []
        for _ in range(rounds):
            wait_rest(server, TEMPLATE, 2, within_s=READY_S_MAX)
            alone.append(timed_ms(partial(_once, server)))
    yield Row("evaluate print(1)", p50(alone), None, "ms", "p50 under 40 ms from the pool", p50(alone) < 40)
    yield from _many()


def _once(server: Server) -> None:
    assert atoll_evaluate("print(1)", url=server.url, api_key=server.key).stdout == "1\n"


def _many() -> Iterator[Row]:
    """From a pool that is at work all the time."""
    with pool_server(AT_ONCE) as server:
        demand(server, TEMPLATE, AT_ONCE, READY_S_MAX)
        ours = _per_second([partial(_once, server)] * AT_ONCE)
        with Bare.open(Layout.from_environment(), server.data) as bare, ExitStack() as opened:
            runners = [opened.enter_context(bare.runner(PROGRAM)) for _ in range(AT_ONCE)]
            beside = _per_second([_printing(run) for run in runners])
        yield Row("evaluations, 8 at a time", ours, beside, "1/s", "stated, beside bare runsc run", True)
        with podman(server.data / "pool/templates" / TEMPLATE, PROGRAM) as (run, words):
            other = _per_second([_printing(run)] * AT_ONCE) if run else None
        yield Row("evaluations, 8 at a time", ours, other, "1/s", "stated, beside podman run", True, words)


def _printing(run: Callable[[], str]) -> Callable[[], None]:
    def once() -> None:
        assert run().strip() == "1"

    return once


def _per_second(workers: list[Callable[[], None]]) -> float:
    """How many of a hundred are done in a second if each worker does one at a time."""
    shares = [len(range(start, MANY, len(workers))) for start in range(len(workers))]

    def work(act: Callable[[], None], share: int) -> None:
        for _ in range(share):
            act()

    started_s = time.perf_counter()
    with ThreadPoolExecutor(len(workers)) as pool:
        for future in [pool.submit(work, act, share) for act, share in zip(workers, shares, strict=True)]:
            future.result()
    return MANY / (time.perf_counter() - started_s)
