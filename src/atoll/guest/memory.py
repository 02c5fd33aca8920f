"""The memory guard: ends the hungriest process before the sandbox's limit ends the whole sandbox."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from atoll.guest import tree
from atoll.model import limits

if TYPE_CHECKING:
    from atoll.guest.processes import Table


def parse_meminfo(text: str) -> dict[str, int]:
    """Sizes in /proc/meminfo, in bytes."""
    sizes = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        number = rest.split()
        if number and number[0].isdecimal():
            sizes[name] = int(number[0]) * (1024 if len(number) > 1 else 1)
    return sizes


def reserve_bytes(total_bytes: int) -> int:
    return max(limits.MEMORY_GUARD_BYTES_MIN, int(total_bytes * limits.MEMORY_GUARD_FRACTION))


def pause_s(available_bytes: int, reserve: int) -> float:
    """When to look again: before the fastest program could have used up what is free now."""
    wait_s = max(0, available_bytes - reserve) / limits.MEMORY_GUARD_FILL_BYTES_PER_S
    return min(limits.MEMORY_GUARD_POLL_S_MAX, max(limits.MEMORY_GUARD_POLL_S_MIN, wait_s))


def choose_victim(entries: Iterable[tree.Entry], spared: Collection[int]) -> tree.Entry | None:
    """The process with the most memory; never the guest's own, never the first one, never a dead one."""
    candidates = [
        entry for entry in entries if entry.pid > 1 and entry.pid not in spared and entry.state not in ("Z", "X")
    ]
    return max(candidates, key=lambda entry: entry.memory_bytes, default=None)


def pack_of(entries: Iterable[tree.Entry], victim: tree.Entry, spared: Collection[int]) -> list[tree.Entry]:
    """The victim, and those of its session that are about as hungry: forked hogs fill memory faster than one by one."""
    return [
        entry
        for entry in entries
        if entry.pid == victim.pid
        or (
            entry.session == victim.session
            and entry.pid > 1
            and entry.pid not in spared
            and entry.state not in ("Z", "X")
            and entry.memory_bytes * 2 >= victim.memory_bytes
        )
    ]


def read_meminfo() -> dict[str, int]:
    with open("/proc/meminfo", encoding="ascii") as file:
        return parse_meminfo(file.read(65536))


class MemoryGuard(threading.Thread):
    def __init__(
        self,
        own_pids: Callable[[], set[int]],
        processes: Table,
        read: Callable[[], dict[str, int]] = read_meminfo,
        look: Callable[[], list[tree.Entry]] = tree.snapshot,
    ) -> None:
        super().__init__(name="memory", daemon=True)
        self.kills = 0
        self._own_pids = own_pids
        self._processes = processes
        self._read = read
        self._look = look
        self._coming_back: list[tuple[float, int]] = []  # what was ended: until when to wait for its memory, and bytes

    def run(self) -> None:
        while True:
            try:
                wait_s = self.check()
            except OSError:
                wait_s = limits.MEMORY_GUARD_POLL_S_MAX
            time.sleep(wait_s)

    def check(self) -> float:
        """Look once and act; how long to wait before the next look."""
        sizes = self._read()
        reserve = reserve_bytes(sizes.get("MemTotal", 0))
        available = sizes.get("MemAvailable", reserve + 1)
        now_s = time.monotonic()
        self._coming_back = [(until_s, size) for until_s, size in self._coming_back if until_s > now_s]
        if available + sum(size for _, size in self._coming_back) <= reserve:
            self._end_hungriest(now_s + limits.MEMORY_GUARD_RETURN_S)
        return pause_s(available, reserve)

    def _end_hungriest(self, until_s: float) -> None:
        entries = self._look()
        own = self._own_pids()
        victim = choose_victim(entries, own)
        if victim is None or victim.memory_bytes < limits.MEMORY_GUARD_VICTIM_BYTES_MIN:
            return
        for hog in pack_of(entries, victim, own):
            self._end(hog, entries)
            self._coming_back.append((until_s, hog.memory_bytes))

    def _end(self, victim: tree.Entry, entries: list[tree.Entry]) -> None:
        live = {process.pid: process for process in self._processes.all() if process.status is None}
        owner = tree.owner_of(entries, victim.pid, live)
        if owner is not None:
            live[owner].oom = True  # before the signal, so that its exit cannot be reported without it
        if tree.send(victim.pid, signal.SIGKILL):
            self.kills += 1
