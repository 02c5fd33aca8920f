"""The time of a snapshot by the size of the disk: 1 GB and 10 GB of files beside each other, in turn."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from bench_row import Row, p50, timed_ms

from atoll import Sandbox, Snapshot
from atoll.node.names import HostNames
from atoll.testing.server import Server

FILES = 100
FILE_BYTES = 10_000_000
TIMES = 10
PIECE = os.urandom(1_000_000)
FICLONE = 0x40049409


def disk_sizes(server: Server, rounds: int) -> Iterator[Row]:
    """The gigabyte is written, of bytes that do not pack; the ten are that one cloned, extent by extent."""
    with server.create("base", timeout_s=3600) as small, server.create("base", timeout_s=3600) as large:
        written = _disk(server, small) / "home/user/data"
        _write(written)
        for copy in range(TIMES):
            _clone(written, _disk(server, large) / f"home/user/data{copy}")
        assert int(large.commands.run("du -s --block-size=1M /home/user | cut -f1").stdout) >= 9_500
        times: dict[str, list[float]] = {small.id: [], large.id: []}
        for _ in range(rounds):
            for sandbox in (small, large):
                times[sandbox.id].append(_snapshot_ms(server, sandbox))
        ours, beside = p50(times[large.id]), p50(times[small.id])
    note = f"{FILES} files of {FILE_BYTES / 1e6:.0f} MB written once; ten reflinked copies of them"
    budget = "as with 1 GB: 1.2 times"
    yield Row("snapshot with 10 GB on disk", ours, beside, "ms", budget, ours <= 1.2 * beside, note)


def _disk(server: Server, sandbox: Sandbox) -> Path:
    return HostNames.of(server.data).data / "pool/sandboxes" / server.box_of(sandbox.id)


def _write(folder: Path) -> None:
    folder.mkdir()
    for number in range(FILES):
        with open(folder / f"{number}", "wb") as file:
            for _ in range(FILE_BYTES // len(PIECE)):
                file.write(PIECE)
            os.fsync(file.fileno())


def _clone(source: Path, target: Path) -> None:
    target.mkdir()
    for file in source.iterdir():
        with open(file, "rb") as old, open(target / file.name, "wb") as new:
            fcntl.ioctl(new, FICLONE, old.fileno())


def _snapshot_ms(server: Server, sandbox: Sandbox) -> float:
    made: list[str] = []
    taken_ms = timed_ms(lambda: made.append(sandbox.snapshot().id))
    Snapshot.delete(made[0], url=server.url, api_key=server.key)
    return taken_ms
