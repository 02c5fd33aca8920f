"""Pauses, resumes and forks for a long time, and looks for what grows.

    tools/soak.py [--rounds 200]

After a warm-up nothing that the server holds may grow: memory, descriptors, threads, and all that it owns on the host
(processes, namespaces, control groups, mounts, loop devices, disks, files). The exit code is 1 if something did.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from atoll.node.install.layout import Layout
from atoll.testing import scratch
from atoll.testing.server import Server

WARM_UP = 20
GROWTH_MIB_MAX = 32.0  # an allocator keeps some; a leak of 200 rounds is more
SETTLE_S = 5.0


def held(server: Server) -> Counter[str]:
    """What the server holds now, by kind."""
    counts = Counter(item.kind for item in server.inventory())
    counts["descriptor"] = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
    counts["thread"] = len(list(Path(f"/proc/{server.pid}/task").iterdir()))
    counts["snapshot"] = len(list((server.data / "pool/snapshots").iterdir()))
    counts["image"] = len(list((server.data / "images").iterdir()))
    return counts


def memory_mib(server: Server) -> float:
    for line in Path(f"/proc/{server.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no such server")


def settled(server: Server) -> Counter[str]:
    """The same once clean-up in the background is done: two looks that agree."""
    until_s = time.monotonic() + SETTLE_S * 4
    before = held(server)
    while time.monotonic() < until_s:
        time.sleep(SETTLE_S / 5)
        now = held(server)
        if now == before:
            break
        before = now
    return before


def round_trip(server: Server, sandbox_id: str, number: int) -> None:
    """One pause, resume and fork; a file from each round must be there in the end."""
    sandbox = server.connect(sandbox_id)
    sandbox.files.write(f"round-{number}", str(number))
    sandbox.pause()
    sandbox.resume(timeout_s=3600)
    (fork,) = sandbox.fork()
    with fork:
        assert fork.files.read(f"round-{number}") == str(number)
    sandbox.close()


def soak(server: Server, rounds: int) -> list[str]:
    """What grew, in words."""
    sandbox = server.create("base", timeout_s=3600)
    for number in range(WARM_UP):
        round_trip(server, sandbox.id, number)
    before, before_mib = settled(server), memory_mib(server)
    for number in range(WARM_UP, WARM_UP + rounds):
        round_trip(server, sandbox.id, number)
        if number % 20 == 0:
            print(f"round {number}: {memory_mib(server):.0f} MiB", flush=True)
    after, after_mib = settled(server), memory_mib(server)
    names = set(sandbox.commands.run("ls").stdout.split())
    lost = [number for number in range(WARM_UP + rounds) if f"round-{number}" not in names]
    sandbox.kill()
    faults = [f"{kind}: {before[kind]} before, {after[kind]} after" for kind in after if after[kind] > before[kind] + 2]
    if after_mib - before_mib > GROWTH_MIB_MAX:
        faults.append(f"memory: {before_mib:.0f} MiB before, {after_mib:.0f} MiB after")
    return faults + ([f"files of rounds {lost} are lost"] if lost else [])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    folder = scratch.data_dir_create(Layout.from_environment())
    server = Server(folder, {})
    try:
        server.start()
        faults = soak(server, rounds)
    finally:
        server.close()
        scratch.data_dir_remove(folder)
    print("\n".join(faults) or f"{rounds} pauses, resumes and forks: nothing grew, nothing was lost")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
