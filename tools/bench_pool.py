"""Creates from the pool, beside a bare restore; kills; and a list of many ended sandboxes."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from bench_row import Row, p50, p95, timed_ms
from bench_warm import demand, pool_server, wait_rest

from atoll import AsyncSandbox, Sandbox
from atoll.testing.server import Server

TEMPLATE = "base"


def claims(rounds: int) -> Iterator[Row]:
    """One create at a time from a full pool that is at rest: alone, with its first command, and its kill."""
    creates: list[float] = []
    firsts: list[float] = []
    kills: list[float] = []
    with pool_server(3) as server:
        demand(server, TEMPLATE, 3)
        for _ in range(rounds):
            wait_rest(server, TEMPLATE, 3)
            made: list[Sandbox] = []
            creates.append(timed_ms(lambda made=made: made.append(server.create(TEMPLATE))))  # type: ignore[misc]
            first = timed_ms(lambda made=made: made[0].commands.run(["true"]))  # type: ignore[misc]
            firsts.append(creates[-1] + first)
            kills.append(timed_ms(made[0].kill))
    yield Row("create from the pool, p50", p50(creates), None, "ms", "under 10 ms", p50(creates) < 10)
    yield Row("create from the pool, p95", p95(creates), None, "ms", "under 25 ms", p95(creates) < 25)
    yield Row("create and first command", p50(firsts), None, "ms", "p50 under 25 ms", p50(firsts) < 25)
    yield Row("kill", p50(kills), None, "ms", "p50 under 10 ms", p50(kills) < 10)


def burst(rounds: int) -> Iterator[Row]:
    """Twenty at once from a pool of twenty, beside one; both clients have been used before, both pools rest."""
    ones: list[float] = []
    slowest: list[float] = []
    with pool_server(20) as server:
        demand(server, TEMPLATE, 20)
        asyncio.run(_at_once(server, 1))
        for _ in range(max(3, rounds // 2)):  # of twenty at once the slowest differs from time to time
            wait_rest(server, TEMPLATE, 20)
            ones.append(timed_ms(lambda: server.create(TEMPLATE)))
            wait_rest(server, TEMPLATE, 20)
            slowest.append(max(asyncio.run(_at_once(server, 20))))
            for sandbox in server.sandboxes():
                server.connect(sandbox["id"]).kill()
    one, worst = p50(ones), p50(slowest)
    yield Row("slowest of twenty creates at once", worst, one, "ms", "5 times one", worst <= 5 * one)
    rate = 20 / (worst / 1000)
    yield Row("creates from a full pool", rate, None, "per s", "50 per second", rate >= 50)


async def _at_once(server: Server, count: int) -> list[float]:
    async def one(found: list[float]) -> None:
        started_s = time.perf_counter()
        await AsyncSandbox.create(TEMPLATE, url=server.url, api_key=server.key)
        found.append((time.perf_counter() - started_s) * 1000)

    found: list[float] = []
    async with asyncio.TaskGroup() as tasks:
        for _ in range(count):
            tasks.create_task(one(found))
    return found


def listing(rounds: int) -> Iterator[Row]:
    """The first page of ten thousand ended sandboxes."""
    with pool_server(0) as server:
        server.create(TEMPLATE).kill()
        _multiply(server.data / "atoll.db", 10_000)
        pages = [timed_ms(lambda: server.request("GET", "/v1/sandboxes?limit=50")) for _ in range(rounds)]
        health = [timed_ms(lambda: server.request("GET", "/health")) for _ in range(rounds)]
    yield Row("first page of 10,000", p50(pages), p50(health), "ms", "p50 under 20 ms", p50(pages) < 20)


def _multiply(database: Path, count: int) -> None:
    connection = sqlite3.connect(database)
    columns = [row[1] for row in connection.execute("pragma table_info(sandboxes)")]
    row = dict(zip(columns, connection.execute("select * from sandboxes").fetchone(), strict=True))
    values = [[f"sb{number:036d}" if name == "id" else row[name] for name in columns] for number in range(count)]
    marks = ",".join("?" * len(columns))
    connection.executemany(f"insert into sandboxes values ({marks})", values)
    connection.commit()
    connection.close()
