"""The computer inside: a program started, much output, and a key's way to the screen and back."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator

from bench_bare import Bare
from bench_row import Row, p50, timed_ms

from atoll import Sandbox
from atoll.testing.server import Server

OUTPUT_BYTES = 200 * 1024 * 1024
# The two ways in which programs write: large pieces, and through the small buffer of a language's library. The second
# costs the program a system call for every 8 KiB, on the processors that we need too.
_LARGE = "dd if=/dev/zero bs=1M count=200 status=none"
_SMALL = f"head -c {OUTPUT_BYTES} /dev/zero"


def inside(server: Server, bare: Bare, rounds: int) -> Iterator[Row]:
    with server.create("base") as sandbox:
        yield from _spawn(sandbox, bare, server.box_of(sandbox.id), rounds)
        yield from _output(server, sandbox)
        yield _echo(sandbox, rounds)


def _spawn(sandbox: Sandbox, bare: Bare, box: str, rounds: int) -> Iterator[Row]:
    sandbox.commands.run(["true"])
    ours: list[float] = []
    beside: list[float] = []
    for _ in range(rounds):  # in turn, so that a busy machine slows both
        ours += [timed_ms(lambda: sandbox.commands.run(["true"])) for _ in range(5)]
        beside.append(timed_ms(lambda: bare.exec_true(box)))
    held = p50(ours) * 3 <= p50(beside)
    yield Row("spawn of true", p50(ours), p50(beside), "ms", "3 times faster than runsc exec", held)
    docker = _docker_exec_ms(rounds)
    if docker is not None:
        yield Row("spawn of true, docker exec", p50(ours), docker, "ms", "stated", True)


def _docker_exec_ms(rounds: int) -> float | None:
    """Beside a container that somebody runs here, where there is one: we start none."""
    docker = shutil.which("docker")
    if docker is None:
        return None
    found = subprocess.run([docker, "ps", "-q"], capture_output=True, text=True, check=False).stdout.split()
    if not found:
        return None
    argv = [docker, "exec", found[0], "true"]
    return p50([timed_ms(lambda: subprocess.run(argv, check=True)) for _ in range(rounds)])


def _output(server: Server, sandbox: Sandbox) -> Iterator[Row]:
    before = _resident_bytes(server.pid)
    large = _speed([timed_ms(lambda: _drain(sandbox, _LARGE)) for _ in range(3)])
    small = _speed([timed_ms(lambda: _drain(sandbox, _SMALL)) for _ in range(3)])
    note = f"the server grew by {(_resident_bytes(server.pid) - before) / 1e6:.0f} MB"
    pipe = _speed([timed_ms(lambda: sandbox.commands.run(f"{_SMALL} | cat > /dev/null")) for _ in range(3)])
    yield Row("output in large pieces", large, None, "MB/s", "over 150 MB/s", large > 150, note)
    yield Row("output in small pieces", small, pipe, "MB/s", "stated, beside a pipe to cat inside", True)


def _speed(times_ms: list[float]) -> float:
    return OUTPUT_BYTES / 1e6 / (min(times_ms) / 1000)


def _drain(sandbox: Sandbox, command: str) -> None:
    count = 0

    def take(text: str) -> None:
        nonlocal count
        count += len(text)  # all of it is ASCII

    sandbox.commands.run(command, on_stdout=take, timeout_s=120)
    if count != OUTPUT_BYTES:
        raise SystemExit(f"{count} bytes came of {OUTPUT_BYTES}")


def _resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _echo(sandbox: Sandbox, rounds: int) -> Row:
    """A key into `cat` on a terminal, until the terminal shows it."""
    with sandbox.terminals.open("cat") as terminal:
        screen = iter(terminal)
        terminal.write("a")
        next(screen)

        def press() -> None:
            terminal.write("a")
            next(screen)

        times = []
        for _ in range(rounds * 5):
            times.append(timed_ms(press))
            time.sleep(0.01)  # nobody types faster, and a terminal that rests is the harder case
    return Row("key to echo", p50(times), None, "ms", "p50 under 5 ms", p50(times) < 5)
