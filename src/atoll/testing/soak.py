"""Sleep, waking, snapshots and forks again and again, and a look at what grows, what is lost and what disagrees.

Each run has a server to itself and says in words what it found: nothing, if all is well. `tools/soak.py` makes them
long, the tests short.

flat      pauses, resumes and forks. After a warm-up nothing that the server holds may grow: memory, descriptors,
          threads, and all that it owns on the host (processes, namespaces, control groups, mounts, loop devices,
          subvolumes, files).
survive   a web server, a live interpreter with a data frame, a shell's loop and a half-read file, through pause,
          kill -9 of the server, restart and resume, again and again, with new files each time.
agree     a number in memory and on disk that changes a thousand times a second is the same in both, in every snapshot
          and in every fork.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from atoll import Sandbox, Snapshot
from atoll.node.disks import btrfs
from atoll.testing.server import Server

WARM_UP = 20
GROWTH_MIB_MAX = 32.0  # an allocator keeps some; a leak of 200 rounds is more
LOOK_S = 0.5  # between two looks at what a server holds
SETTLE_S_MAX = 20.0
PATIENCE_S = 30.0

COUNTER = """
import os, time
number = 0
file = os.open("/home/user/number", os.O_RDWR | os.O_CREAT)
os.pwrite(file, b"%012d" % number, 0)
while True:
    found = int(os.pread(file, 12, 0))
    if found != number:
        open("/home/user/apart", "w").write(f"{number} in memory, {found} on disk")
        break
    number += 1
    os.pwrite(file, b"%012d" % number, 0)
    time.sleep(0.0005)
"""
FRAME = """
import pandas, os
frame = pandas.DataFrame({"a": range(1000), "b": [n * n for n in range(1000)]})
lines = open("/home/user/lines"); _ = lines.readline()
"""


# --- flat -------------------------------------------------------------------------------------------------------------


def held(server: Server) -> Counter[str]:
    """What the server holds now, by kind."""
    counts = Counter(item.kind for item in server.inventory())
    counts["descriptor"] = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
    counts["thread"] = len(list(Path(f"/proc/{server.pid}/task").iterdir()))
    counts["image"] = len(list((server.data / "images").iterdir()))
    counts["journal entry"] = len(list((server.data / "journal").iterdir()))
    for folder in ("sandboxes", "snapshots"):
        found = list((server.data / "pool" / folder).iterdir())
        counts[f"subvolume in {folder}"] = sum(1 for path in found if btrfs.is_subvolume(path))
    counts["mount"] = sum(
        1 for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(server.data) in line
    )
    backing = [path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file")]
    counts["loop device"] = sum(1 for name in backing if str(server.data) in name)
    return counts


def memory_mib(server: Server) -> float:
    for line in Path(f"/proc/{server.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no such server")


def settled(server: Server) -> Counter[str]:
    """The same once clean-up in the background is done: two looks that agree."""
    until_s = time.monotonic() + SETTLE_S_MAX
    before = held(server)
    while time.monotonic() < until_s:
        time.sleep(LOOK_S)
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


def flat(server: Server, rounds: int, *, warm_up: int = WARM_UP, growth_mib_max: float = GROWTH_MIB_MAX) -> list[str]:
    """What grew, in words."""
    sandbox = server.create("base", timeout_s=3600)
    for number in range(warm_up):
        round_trip(server, sandbox.id, number)
    before, before_mib = settled(server), memory_mib(server)
    for number in range(warm_up, warm_up + rounds):
        round_trip(server, sandbox.id, number)
        if number % 20 == 0:
            print(f"flat, round {number}: {memory_mib(server):.0f} MiB", flush=True)
    after, after_mib = settled(server), memory_mib(server)
    names = set(sandbox.commands.run("ls").stdout.split())
    lost = [number for number in range(warm_up + rounds) if f"round-{number}" not in names]
    sandbox.kill()
    print(f"flat, memory: {before_mib:.0f} MiB before, {after_mib:.0f} MiB after", flush=True)
    for kind in sorted(before | after):
        print(f"flat, {kind}: {before[kind]} before, {after[kind]} after", flush=True)
    faults = [f"{kind}: {before[kind]} before, {after[kind]} after" for kind in after if after[kind] > before[kind] + 2]
    if after_mib - before_mib > growth_mib_max:
        faults.append(f"memory: {before_mib:.0f} MiB before, {after_mib:.0f} MiB after")
    return faults + ([f"files of rounds {lost} are lost"] if lost else [])


# --- survive ----------------------------------------------------------------------------------------------------------


def survive(server: Server, rounds: int) -> list[str]:
    """What did not come back as it was, in words."""
    sandbox = server.create("code", timeout_s=24 * 3600)
    sandbox.files.write("lines", "".join(f"line {n}\n" for n in range(10_000)))
    sandbox.files.write("page", "hello")
    sandbox.code.run(FRAME, check=True)
    sandbox.commands.start("python3 -m http.server 8000")
    sandbox.commands.start("i=0; while true; do i=$((i+1)); echo $i > next; mv next count; sleep 0.02; done")
    wait(lambda: fetched(sandbox) == "hello", "the web server serves")
    faults: list[str] = []
    for number in range(rounds):
        sandbox.files.write(f"new-{number}", str(number))
        sandbox.pause()
        wait(lambda: not server.boxes(), "nothing of it runs")
        server.kill()
        server.start()
        sandbox = server.connect(sandbox.id)
        sandbox.resume(timeout_s=24 * 3600)
        faults += [f"round {number}: {fault}" for fault in not_as_it_was(sandbox, number)]
        print(f"survive, round {number}: {len(faults)} faults", flush=True)
    sandbox.kill()
    return faults


def not_as_it_was(sandbox: Sandbox, number: int) -> list[str]:
    faults = []
    if fetched(sandbox) != "hello":
        faults.append("the web server does not serve")
    shown = sandbox.code.run("(int(frame.b.sum()), frame.shape, lines.readline())").text
    if shown != f"(332833500, (1000, 2), 'line {number + 1}\\n')":
        faults.append(f"the interpreter says {shown}")
    first = int(sandbox.files.read("count") or 0)
    if not holds(lambda: int(sandbox.files.read("count") or 0) > first):
        faults.append("the loop stands still")
    names = set(sandbox.commands.run("ls").stdout.split())
    lost = [one for one in range(number + 1) if f"new-{one}" not in names]
    return faults + ([f"files of rounds {lost} are lost"] if lost else [])


def fetched(sandbox: Sandbox) -> str:
    return sandbox.commands.run(["curl", "-sS", "--max-time", "10", "http://127.0.0.1:8000/page"]).stdout


# --- agree ------------------------------------------------------------------------------------------------------------


def agree(server: Server, moments: int) -> list[str]:
    """Snapshots and forks in which memory and disk are not of one moment, in words."""
    sandbox = server.create("base", timeout_s=24 * 3600)
    sandbox.commands.start(["python3", "-c", COUNTER])
    wait(lambda: sandbox.files.exists("number"), "it counts")
    faults: list[str] = []
    for number in range(moments):
        snapshot = sandbox.snapshot()
        (fork,) = sandbox.fork()
        again = server.create(snapshot, timeout_s=600)  # type: ignore[arg-type]
        for kind, copy in (("fork", fork), ("snapshot", again)):
            with copy:
                faults += [f"{kind} {number}: {fault}" for fault in apart(copy)]
        Snapshot.delete(snapshot, url=server.url, api_key=server.key)
        if number % 10 == 0:
            print(f"agree, moment {number}: {len(faults)} faults", flush=True)
    faults += apart(sandbox)
    sandbox.kill()
    return faults


def apart(sandbox: Sandbox) -> list[str]:
    """The program in the copy looks by itself, at its first step; it has when the number goes on."""
    first = int(sandbox.files.read("number"))
    if not holds(lambda: sandbox.files.exists("apart") or int(sandbox.files.read("number")) > first):
        return ["it does not count any more"]
    return [sandbox.files.read("apart")] if sandbox.files.exists("apart") else []


# --- patience ---------------------------------------------------------------------------------------------------------


def holds(what: Callable[[], object]) -> bool:
    until_s = time.monotonic() + PATIENCE_S
    while not what():
        if time.monotonic() > until_s:
            return False
        time.sleep(0.02)
    return True


def wait(what: Callable[[], object], words: str) -> None:
    if not holds(what):
        raise AssertionError(f"not within {PATIENCE_S:g} s: {words}")
