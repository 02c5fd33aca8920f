"""Processes of the sandbox as /proc shows them, and the ending of a whole tree of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterable
from typing import NamedTuple

from atoll.model import limits

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Entry(NamedTuple):
    pid: int
    parent: int
    group: int
    session: int
    state: str
    name: str
    cpu_s: float
    threads: int
    memory_bytes: int


def parse_stat(line: str) -> Entry | None:
    """One line of /proc/PID/stat; the name in it may hold spaces and parentheses."""
    head, _, tail = line.rpartition(")")
    fields = tail.split()
    number, _, name = head.partition(" (")
    if len(fields) < 22 or not number.isdecimal():
        return None
    return Entry(
        pid=int(number),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        state=fields[0],
        name=name,
        cpu_s=(int(fields[11]) + int(fields[12])) / TICKS_PER_S,
        threads=int(fields[17]),
        memory_bytes=max(0, int(fields[21])) * PAGE_BYTES,
    )


def snapshot(pids_max: int = limits.SYSTEM_PROCESSES_MAX) -> list[Entry]:
    entries = []
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            entry = parse_stat(_read(f"/proc/{name}/stat"))
        except OSError:
            continue  # it ended while we looked
        if entry is not None:
            entries.append(entry)
        if len(entries) >= pids_max:
            break
    return entries


def _read(path: str) -> str:
    """A short file, in three system calls: the memory guard looks while hogs hold all processors."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 4096).decode("utf-8", "surrogateescape")
    finally:
        os.close(fd)


def members(entries: Iterable[Entry], root: int, known: Collection[int] = ()) -> set[int]:
    """The process `root`, all that descend from it, and all in its session or group; `known` are ones found before."""
    entries = list(entries)
    found = {root, *known}
    found.update(entry.pid for entry in entries if entry.session == root or entry.group == root)
    grown = True
    while grown:
        grown = False
        for entry in entries:
            if entry.parent in found and entry.pid not in found:
                found.add(entry.pid)
                grown = True
    return {entry.pid for entry in entries if entry.pid in found and entry.state != "Z"}


def owner_of(entries: Iterable[Entry], pid: int, roots: Collection[int]) -> int | None:
    """Which of `roots` a process belongs to: by its session, or by its line of parents."""
    by_pid = {entry.pid: entry for entry in entries}
    for _ in range(len(by_pid) + 1):
        if pid in roots:
            return pid
        entry = by_pid.get(pid)
        if entry is None:
            return None
        if entry.session in roots:
            return entry.session
        pid = entry.parent
    return None


def send(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def end_tree(root: int, spared: Collection[int], grace_s: float = limits.TERM_GRACE_S) -> None:
    """TERM to the whole tree, and after the grace KILL to what is left of it, also if it keeps forking."""
    first = members(snapshot(), root) - set(spared)
    for pid in first:
        send(pid, signal.SIGTERM)
        send(pid, signal.SIGCONT)
    deadline_s = time.monotonic() + grace_s
    known = set(first)
    while time.monotonic() < deadline_s:
        left = members(snapshot(), root, known) - set(spared)
        known |= left
        if not left:
            return
        time.sleep(0.02)
    kill_tree(root, spared, known)


def kill_tree(root: int, spared: Collection[int], known: Collection[int] = ()) -> None:
    found = set(known)
    for turn in range(limits.TREE_ROUNDS_MAX):
        left = members(snapshot(), root, found) - set(spared)
        if not left:
            return
        for pid in left:
            send(pid, signal.SIGKILL)
        found |= left
        time.sleep(min(0.01, 0.001 * 2**turn))  # one that does not fork is gone in a millisecond
