"""Standby, pause, resume, snapshot and fork of a pandas kernel, beside bare `runsc checkpoint` and `restore` of it.

The bare ones have the same content: a snapshot of the sandbox is restored by hand into a shell, with the same root,
processes and memory, in turn with ours.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from bench_bare import Bare, Revived
from bench_disk import disk_sizes
from bench_row import Row, p50, timed_ms
from bench_swap import reclaimed
from bench_warm import pool_server, wait_live, wait_rest

from atoll import Sandbox, Snapshot
from atoll.model import limits
from atoll.node.images import Image, Images
from atoll.node.install.layout import Layout
from atoll.node.names import HostNames
from atoll.testing.server import Server

TEMPLATE = "code"
FORKS = 10
FRAME = """
import numpy, pandas
frame = pandas.DataFrame({"n": range(100_000), "x": numpy.random.rand(100_000)})
int(frame["n"].sum())
"""
SUM = "4999950000"
SUMMED = "int(frame['n'].sum())"

# Appends each time for which it did not run, in milliseconds, if that was more than its own sleep and a turn.
GAP = """
import time
last = time.monotonic()
while True:
    now = time.monotonic()
    if now - last > 0.008:
        open("/home/user/gap", "a").write(f"{(now - last) * 1000}\\n")
    last = now
    time.sleep(0.0005)
"""


PARTS = ("standby", "pause", "fork", "snapshot", "disk")


def state(rounds: int, parts: Sequence[str] = PARTS) -> Iterator[Row]:
    """All of it, or parts, with a sandbox of the template `code` whose kernel has a data frame, and a pool.

    What the pool makes again is waited for before each act: nothing of ours runs beside the bare one, or before it.
    """
    with pool_server(FORKS) as server, Bare.open(Layout.from_environment(), server.data) as bare:
        wait_rest(server, TEMPLATE, 1, 1)
        yield from _state(server, bare, rounds, parts)


def _state(server: Server, bare: Bare, rounds: int, parts: Sequence[str]) -> Iterator[Row]:
    with server.create(TEMPLATE, timeout_s=3600) as sandbox:
        assert sandbox.code.run(FRAME).text == SUM
        if "standby" in parts:
            yield from _standby(server, sandbox, bare, rounds)
        same = _Same(server, sandbox, bare)
        try:
            if "pause" in parts:
                yield from _pause(server, sandbox, same, rounds)
            if "fork" in parts:
                yield _fork(server, sandbox, same)
        finally:
            same.remove()
        if "snapshot" in parts:
            yield from _snapshot(server, sandbox, bare, rounds)
    if "disk" in parts:
        yield from disk_sizes(server, rounds)


class _Same:
    """A snapshot of a sandbox, which bare boxes are made from."""

    def __init__(self, server: Server, sandbox: Sandbox, bare: Bare) -> None:
        self._server = server
        self._id = sandbox.snapshot().id
        self.bare = bare
        self.images = Images(HostNames.of(server.data), bare._host.pool)
        self.image: Image = self.images.find(self._id)

    def remove(self) -> None:
        Snapshot.delete(self._id, url=self._server.url, api_key=self._server.key)


def _standby(server: Server, sandbox: Sandbox, bare: Bare, rounds: int) -> Iterator[Row]:
    def call() -> None:
        assert sandbox.files.exists("/etc")

    wakes = []
    for _ in range(rounds * 2):
        sandbox.standby()
        wakes.append(timed_ms(call))
    call_ms = p50([timed_ms(call) for _ in range(rounds * 2)])
    ours = p50(wakes)
    yield Row("wake from standby", ours, call_ms, "ms", "p50 under 10 ms", ours < 10, "beside the same call, awake")
    yield reclaimed(server, sandbox, bare, rounds, call_ms)


def _pause(server: Server, sandbox: Sandbox, same: _Same, rounds: int) -> Iterator[Row]:
    pauses, resumes, checkpoints, restores = [], [], [], []
    code, code_bare = [], []
    for _ in range(rounds):
        _wait_tidy(server, 1)
        pauses.append(timed_ms(sandbox.pause))
        _wait_tidy(server, 0)
        resumes.append(timed_ms(sandbox.resume))
        code.append(timed_ms(lambda: _sum(sandbox)))
        _wait_tidy(server, 1)
        with same.bare.revived(same.image, same.images) as revived:
            restores.append(revived.restore_ms)
            code_bare.append(revived.code_ms(SUMMED))
            checkpoints.append(revived.checkpoint_ms())
    ours, bare = p50(pauses), p50(checkpoints)
    note = f"a memory of {same.image.memory_bytes / 1e6:.0f} MB"
    yield Row("pause", ours, bare, "ms", "1.3 times bare checkpoint", ours <= 1.3 * bare, note)
    ours, bare = p50(resumes), p50(restores)
    note = (
        "both restore into a box that was there; ours gives it the sandbox's own disk first, and checks the image; "
        f"its kernel's first result {p50(code):.0f} ms later, of the bare one {p50(code_bare):.0f}"
    )
    yield Row("resume", ours, bare, "ms", "1.2 times bare restore", ours <= 1.2 * bare, note)


def _sum(sandbox: Sandbox) -> None:
    assert sandbox.code.run(SUMMED).text == SUM


def _wait_tidy(server: Server, boxes: int) -> None:
    """Until the pool is full and rests, and nothing else is on the host but the boxes that live: what was ended is
    taken down, and what was taken is made again, after the answer.
    """
    for template in ("base", TEMPLATE):
        wait_live(server, template, 1, 1)
    seen: object = None
    while (warm := server.status()["warm"]) != seen or len(server.boxes()) > _waiting(warm) + boxes:
        seen = warm
        time.sleep(2 * limits.WARM_REST_S)


def _waiting(warm: Mapping[str, Mapping[str, int]]) -> int:
    return sum(count["live"] + count["shells"] for count in warm.values())


def _fork(server: Server, sandbox: Sandbox, same: _Same) -> Row:
    forks, restores = [], []
    for _ in range(5):  # one restore alone differs by a fifth from the next
        _wait_tidy(server, 1)
        forks.append(_forked_ms(sandbox))
        for _ in range(2):
            _wait_tidy(server, 1)
            with same.bare.revived(same.image, same.images) as revived:
                restores.append(revived.restore_ms)
    ours, bare = p50(forks), p50(restores)
    return Row(f"fork of {FORKS}", ours, bare, "ms", "12 times bare restore", ours <= 12 * bare)


def _forked_ms(sandbox: Sandbox) -> float:
    made: list[Sandbox] = []
    taken_ms = timed_ms(lambda: made.extend(sandbox.fork(FORKS)))
    for one in made:
        one.kill()
        one.close()
    return taken_ms


def _snapshot(server: Server, sandbox: Sandbox, bare: Bare, rounds: int) -> Iterator[Row]:
    """How long a loop inside stands still, by a snapshot of ours and by a bare checkpoint that leaves it running."""
    gap = sandbox.commands.start(["python3", "-c", GAP])
    stops: list[float] = []
    whole: list[float] = []
    own: list[float] = []
    bare_stops: list[float] = []
    for _ in range(rounds):
        sandbox.files.write("gap", "")
        started_s = time.perf_counter()
        same = _Same(server, sandbox, bare)
        whole.append((time.perf_counter() - started_s) * 1000)
        stops.append(_longest(sandbox.files.read("gap")))
        try:
            with bare.revived(same.image, same.images) as revived:
                own.append(_bare_stop(revived, bare_stops))
        finally:
            same.remove()
    gap.kill()
    ours, beside = p50(stops), p50(bare_stops)
    note = f"seen from inside; the whole snapshot {p50(whole):.0f} ms, of the bare checkpoint {p50(own):.0f} ms"
    yield Row("stop by a snapshot", ours, beside, "ms", "stated, beside the stop by bare checkpoint", True, note)
    part = ours - beside
    yield Row("stop by a snapshot, our part", part, None, "ms", "under 15 ms", part < 15)


def _bare_stop(revived: Revived, stops: list[float]) -> float:
    gaps = revived.file("home/user/gap")
    time.sleep(0.2)  # what the restore stopped is over
    before = gaps.read_text()  # not emptied: what is inside believes that nobody else writes to its disk
    taken_ms = revived.checkpoint_running_ms()
    time.sleep(0.1)
    stops.append(_longest(gaps.read_text().removeprefix(before)))
    return taken_ms


def _longest(gaps: str) -> float:
    return max((float(one) for one in gaps.split()), default=0.0)
