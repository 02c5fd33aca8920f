"""The computer inside: a program started, much output, and a key's way to the screen and back."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator

import uvloop
from bench_bare import Bare
from bench_row import Row, p50, timed_ms

from atoll import Sandbox
from atoll.node.bundling import GUEST_PORT
from atoll.node.guestlink import GuestLink
from atoll.testing.server import Server
from atoll.wire import guest as wire

OUTPUT_BYTES = 200 * 1024 * 1024
_PAUSE_S = 0.002  # between two commands, as between two requests of the fastest caller
# What the program costs whoever starts it: vfork, exec, the loader's pages, and the end.
_ALONE = """
import statistics, subprocess, time
def once():
    time.sleep(0.002)
    started_s = time.perf_counter()
    subprocess.Popen(["/bin/true"], close_fds=False, start_new_session=True).wait()
    return (time.perf_counter() - started_s) * 1000
print(statistics.median(once() for _ in range(50)))
"""
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
    """The node's own operation on the guest, from its first byte to the end of the program: what `runsc exec` is, which
    goes through no HTTP either. At the SDK the same command is the row `command`.
    """
    sandbox.commands.run(["true"])
    with bare.network(box) as (network, token):
        link = GuestLink(lambda: network.dial(GUEST_PORT), token, lambda: network.dial_begin(GUEST_PORT))
        ours, beside = uvloop.run(_spawned(link, lambda: bare.exec_true(box), rounds))
    held = p50(ours) * 3 <= p50(beside)
    alone = float(sandbox.commands.run(["python3", "-c", _ALONE], check=True).stdout)
    note = (
        f"the node's operation, without HTTP (at the SDK: `command`); {alone:.1f} ms for a Python inside that spawns it"
    )
    yield Row("spawn of true", p50(ours), p50(beside), "ms", "3 times faster than runsc exec", held, note)
    docker = _docker_exec_ms(rounds)
    if docker is not None:
        yield Row("spawn of true, docker exec", p50(ours), docker, "ms", "stated", True)


async def _spawned(link: GuestLink, other: Callable[[], None], rounds: int) -> tuple[list[float], list[float]]:
    ours: list[float] = []
    beside: list[float] = []
    await _true(link)
    for _ in range(rounds):  # in turn, so that a busy machine slows both
        for _ in range(5):
            started_s = time.perf_counter()
            await _true(link)
            ours.append((time.perf_counter() - started_s) * 1000)
            await asyncio.sleep(_PAUSE_S)
        beside.append(timed_ms(other))
    return ours, beside


async def _true(link: GuestLink) -> None:
    async with link.stream("process.start", {"argv": ["true"]}) as stream:
        messages = [message async for message in stream]
    if not isinstance(messages[-1], wire.End) or messages[-1].value["code"] != 0:
        raise SystemExit(f"true ended with {messages[-1]}")


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
