"""Many small files: written in one call, and listed."""

from __future__ import annotations

from collections.abc import Iterator

from bench_row import Row, p50, timed_ms

from atoll.testing.server import Server


def many_files(server: Server, rounds: int) -> Iterator[Row]:
    """1,000 files of a few bytes in one call; a directory of 10,000 listed."""
    with server.create("base") as sandbox:
        sandbox.files.write("warm", "x")
        batches = [{f"many/{turn}/{number}": f"{number}" for number in range(1000)} for turn in range(min(rounds, 5))]
        written = [timed_ms(lambda batch=batch: sandbox.files.write_many(batch)) for batch in batches]  # type: ignore[misc]
        yield Row("1,000 files in one call", p50(written), None, "ms", "under 1000 ms", p50(written) < 1000)
        sandbox.files.write_many({f"list/{number}": b"" for number in range(10_000)})
        listed = [timed_ms(lambda: sandbox.files.list("list")) for _ in range(min(rounds, 5))]
        yield Row("10,000 files listed", p50(listed), None, "ms", "under 500 ms", p50(listed) < 500)
