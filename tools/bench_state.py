"""Standby, pause, resume, snapshot and fork, beside bare `runsc checkpoint` and `restore` into a shell."""

from __future__ import annotations

from collections.abc import Iterator

from bench_bare import Bare
from bench_row import Row, p50, timed_ms

from atoll import Sandbox, Snapshot
from atoll.testing.server import Server

FORKS = 10

# Writes down the longest time for which it did not run.
GAP = """
import time
longest, last = 0.0, time.monotonic()
while True:
    now = time.monotonic()
    if now - last > longest:
        longest = now - last
        open("/home/user/gap", "w").write(str(longest * 1000))
    last = now
    time.sleep(0.0005)
"""


def state(server: Server, bare: Bare, rounds: int) -> Iterator[Row]:
    """All of it on the template `base`; the two bare steps are taken in turn with ours."""
    checkpoints, restores = zip(*(bare.checkpoint_restore_ms() for _ in range(max(3, rounds // 2))), strict=True)
    checkpoint_ms, restore_ms = p50(list(checkpoints)), p50(list(restores))
    with server.create("base", timeout_s=3600) as sandbox:
        sandbox.commands.run("true")
        yield _standby(sandbox, rounds)
        yield from _pause(sandbox, rounds, checkpoint_ms, restore_ms)
        yield _snapshot(server, sandbox, rounds, checkpoint_ms)
        yield _fork(sandbox, restore_ms)


def _standby(sandbox: Sandbox, rounds: int) -> Row:
    wakes = []
    for _ in range(rounds * 2):
        sandbox.standby()
        wakes.append(timed_ms(lambda: sandbox.files.exists("/etc")))
    call_ms = p50([timed_ms(lambda: sandbox.files.exists("/etc")) for _ in range(rounds * 2)])
    ours = p50(wakes)
    return Row("wake from standby", ours, call_ms, "ms", "p50 under 10 ms", ours < 10, "beside the same call, awake")


def _pause(sandbox: Sandbox, rounds: int, checkpoint_ms: float, restore_ms: float) -> Iterator[Row]:
    pauses, resumes = [], []
    for _ in range(rounds):
        pauses.append(timed_ms(sandbox.pause))
        resumes.append(timed_ms(sandbox.resume))
    ours, back = p50(pauses), p50(resumes)
    yield Row("pause", ours, checkpoint_ms, "ms", "1.3 times bare checkpoint", ours <= 1.3 * checkpoint_ms)
    note = "the bare one restores into a shell that was there; ours also makes the box"
    yield Row("resume", back, restore_ms, "ms", "1.2 times bare restore", back <= 1.2 * restore_ms, note)


def _snapshot(server: Server, sandbox: Sandbox, rounds: int, checkpoint_ms: float) -> Row:
    gap = sandbox.commands.start(["python3", "-c", GAP])
    for _ in range(rounds):
        Snapshot.delete(sandbox.snapshot(), url=server.url, api_key=server.key)
    longest = float(sandbox.files.read("gap"))
    gap.kill()
    return Row("stop by a snapshot, longest", longest, checkpoint_ms, "ms", "stated", True, "as seen from inside")


def _fork(sandbox: Sandbox, restore_ms: float) -> Row:
    made: list[Sandbox] = []
    ours = timed_ms(lambda: made.extend(sandbox.fork(FORKS)))
    for one in made:
        one.kill()
        one.close()
    return Row(f"fork of {FORKS}", ours, restore_ms, "ms", "12 times bare restore", ours <= 12 * restore_ms)
