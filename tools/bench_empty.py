"""Measures a create that finds the pool empty, beside a bare restore of the same image into a shell."""

from __future__ import annotations

from collections.abc import Iterator

from bench_bare import Bare
from bench_row import Row, p50, timed_ms
from bench_warm import bare_restore_ms, emptied, pool_server, wait_rest

from atoll import Sandbox
from atoll.node.install.layout import Layout

TEMPLATE = "base"


def empty(rounds: int) -> Iterator[Row]:
    """Each time right after the last one that waited was taken."""
    ours: list[float] = []
    bare_ms: list[float] = []
    with pool_server(2) as server, Bare.open(Layout.from_environment(), server.data) as bare:
        for _ in range(rounds):
            wait_rest(server, TEMPLATE, 1, 1)
            made: list[Sandbox] = []
            with emptied(server, TEMPLATE):
                ours.append(timed_ms(lambda made=made: made.append(server.create(TEMPLATE))))  # type: ignore[misc]
            assert made[0].way == "shell", made[0].way
            made[0].kill()
            bare_ms.append(bare_restore_ms(bare, server, TEMPLATE))
    held = p50(ours) <= 1.2 * p50(bare_ms)
    yield Row("create, empty pool", p50(ours), p50(bare_ms), "ms", "1.2 times bare restore into a shell", held)
