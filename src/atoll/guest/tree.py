"""Processes of the sandbox as /proc shows them, and the ending of a whole tree of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterable, Mapping
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
    started_ticks: int = 0  # since boot


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
        started_ticks=int(fields[19]),
    )


def snapshot(pids_max: int = limits.SYSTEM_PROCESSES_MAX) -> list[Entry]:
    entries = []
    for pid in pids():
        try:
            entry = parse_stat(_read(f"/proc/{pid}/stat"))
        except OSError:
            continue  # it ended while we looked
        if entry is not None:
            entries.append(entry)
        if len(entries) >= pids_max:
            break
    return entries


def pids() -> list[int]:
    """All processes there are; looks into none."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


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
    found = _with_descendants(entries, found)
    return {entry.pid for entry in entries if entry.pid in found and entry.state != "Z"}


def _with_descendants(entries: Collection[Entry], pids: Iterable[int]) -> set[int]:
    found = set(pids)
    grown = True
    while grown:
        grown = False
        for entry in entries:
            if entry.parent in found and entry.pid not in found:
                found.add(entry.pid)
                grown = True
    return found


def younger(
    entries: Collection[Entry], root: int, found: Collection[int], since_ticks: int, before: Collection[int] = ()
) -> set[int]:
    """Of those who come from `root`, without itself: who began since then, and not by one who was there before.

    `before` are those of whom that is known, where a tick is too long to tell.
    """
    earlier = (entry.pid for entry in entries if entry.started_ticks < since_ticks or entry.pid in before)
    older = (set(earlier) & set(found)) - {root}
    return set(found) - _with_descendants(entries, older) - {root}


def now_ticks() -> int:
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_PER_S)


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


def marked_as(pid: int, marks: Mapping[str, int]) -> int | None:
    """Whose mark a process has in the variables that it was started with, also if it left session and parents."""
    variables = {os.fsdecode(variable) for variable in _environment(pid)}
    return next((owner for mark, owner in marks.items() if mark in variables), None)


def send(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


class Family:
    """A process and all that come from it, found again and again while it lives and changes.

    Who leaves its session and loses its parents is still known by `mark`, a variable that it was started with.
    """

    def __init__(
        self,
        root: int,
        spared: Collection[int],
        mark: str = "",
        since_ticks: int | None = None,
        before: Collection[int] = (),
    ) -> None:
        """With `since_ticks`, only those who began since then and are not among `before`; not the process itself."""
        self._root = root
        self._since_ticks = since_ticks
        self._before = before
        self._spared = set(spared)
        self._mark = mark.encode()
        self._known: set[int] = set()
        self._strangers: set[int] = set()  # orphans without the mark, which none of them can get later

    def look(self) -> set[int]:
        """Those that are there now."""
        entries = snapshot()
        if self._mark:
            for entry in entries:
                if entry.parent == 1 and entry.pid not in self._strangers and entry.pid not in self._known:
                    marked = self._mark in _environment(entry.pid)
                    (self._known if marked else self._strangers).add(entry.pid)
        found = members(entries, self._root, self._known) - self._spared
        self._known |= found
        if self._since_ticks is None:
            return found
        return younger(entries, self._root, found, self._since_ticks, self._before)


def _environment(pid: int) -> list[bytes]:
    """The variables that a process was started with."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read(limits.ENV_BYTES_MAX + limits.ARGV_BYTES_MAX).split(b"\0")
    except OSError:
        return []


def end_tree(root: int, spared: Collection[int], mark: str = "", grace_s: float = limits.TERM_GRACE_S) -> None:
    """TERM to the whole tree, and after the grace KILL to what is left of it, also if it keeps forking."""
    family = Family(root, spared, mark)
    for pid in family.look():
        send(pid, signal.SIGTERM)
        send(pid, signal.SIGCONT)
    deadline_s = time.monotonic() + grace_s
    while time.monotonic() < deadline_s:
        if not family.look():
            return
        time.sleep(0.02)
    _kill(family)


def kill_tree(root: int, spared: Collection[int], mark: str = "") -> None:
    _kill(Family(root, spared, mark))


def _kill(family: Family) -> None:
    for turn in range(limits.TREE_ROUNDS_MAX):
        left = family.look()
        if not left:
            return
        for pid in left:
            send(pid, signal.SIGKILL)
        time.sleep(min(0.01, 0.001 * 2**turn))  # one that does not fork is gone in a millisecond
