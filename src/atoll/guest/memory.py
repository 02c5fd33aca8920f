"""The memory guard: ends the hungriest process before the sandbox's limit ends the whole sandbox.

It looks again and again while something may fill memory: for a while after a program began, and as long as memory is
on the move. Else it rests: while there is no program at all, and while the node looks from outside (`lease.py`).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from atoll.guest import tree
from atoll.model import limits
from atoll.model.headroom import reserve_bytes

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


def pause_s(available_bytes: int, reserve: int) -> float:
    """When to look again: before the fastest program could have used up what is free now."""
    wait_s = max(0, available_bytes - reserve) / limits.MEMORY_GUARD_FILL_BYTES_PER_S
    return min(limits.MEMORY_GUARD_POLL_S_MAX, max(limits.MEMORY_GUARD_POLL_S_MIN, wait_s))


def candidates(entries: Iterable[tree.Entry], spared: Collection[int]) -> list[tree.Entry]:
    """Who may be ended: never the guest's own, never the first one, never a dead one."""
    return [entry for entry in entries if entry.pid > 1 and entry.pid not in spared and entry.state not in ("Z", "X")]


def choose_victim(entries: Iterable[tree.Entry], spared: Collection[int]) -> tree.Entry | None:
    """The process with the most memory."""
    return max(candidates(entries, spared), key=lambda entry: entry.memory_bytes, default=None)


def pack_of(entries: Iterable[tree.Entry], victim: tree.Entry, spared: Collection[int]) -> list[tree.Entry]:
    """The victim, and those of its session that are about as hungry: forked hogs fill memory faster than one by one."""
    return [
        entry
        for entry in candidates(entries, spared)
        if entry.session == victim.session and entry.memory_bytes * 2 >= victim.memory_bytes
    ]


def growing_mates(
    entries: Iterable[tree.Entry], before: Mapping[int, int], ended: Collection[Ended], spared: Collection[int]
) -> list[tree.Entry]:
    """Those of an ended hog's session that go on filling memory; its quiet parent is not one of them."""
    sessions = {one.session for one in ended}
    pids = {one.pid for one in ended}
    return [
        entry
        for entry in candidates(entries, spared)
        if entry.session in sessions
        and entry.pid not in pids
        and entry.memory_bytes >= before.get(entry.pid, 0) + limits.MEMORY_GUARD_GROWTH_BYTES_MIN
    ]


class Meminfo:
    """/proc/meminfo, kept open: one system call a look, because hogs may hold all processors."""

    def __init__(self) -> None:
        self._fd = os.open("/proc/meminfo", os.O_RDONLY | os.O_CLOEXEC)

    def __call__(self) -> dict[str, int]:
        return parse_meminfo(os.pread(self._fd, 65536, 0).decode("ascii"))


@contextmanager
def all_held() -> Iterator[None]:
    """Nobody but the guest runs for the moment it takes to choose. Only where the guest is the first process of all.

    A look at twelve processes took 150 ms while eight hogs held two processors; they fill 200 MiB in that time. A job
    that somebody had stopped goes on afterwards: who stopped it cannot be seen, and lives.
    """
    alone = os.getpid() == 1
    if alone:
        tree.send(-1, signal.SIGSTOP)
    try:
        yield
    finally:
        if alone:
            tree.send(-1, signal.SIGCONT)


class Ended(NamedTuple):
    """A process that was ended, and until when its memory may still be on its way back."""

    pid: int
    session: int
    memory_bytes: int
    until_s: float


class Kill(NamedTuple):
    """What is told of one that was ended, also where no caller started it."""

    at: float
    pid: int
    name: str
    memory_bytes: int


class MemoryGuard(threading.Thread):
    def __init__(
        self,
        own_pids: Callable[[Iterable[tree.Entry]], set[int]],
        processes: Table,
        read: Callable[[], dict[str, int]] | None = None,
        look: Callable[[], list[tree.Entry]] = tree.snapshot,
        stirred: threading.Event | None = None,
        leased_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        super().__init__(name="memory", daemon=True)
        self.kills = 0
        self.last_kills: deque[Kill] = deque(maxlen=limits.MEMORY_KILLS_KEPT)
        self._own_pids = own_pids
        self._processes = processes
        self._read = read or Meminfo()
        self._look = look
        self._stirred = stirred or threading.Event()
        self._leased_s = leased_s
        self._alert_until_s = 0.0  # until then it looks itself, whoever else does
        self._available = 0  # at the last look, in bytes
        self._ended: list[Ended] = []
        self._before: dict[int, int] = {}  # who had how much at the last look, by pid
        self._reported = ""  # the last error that was told
        self._asked_s = 0.0  # when it was last asked whether there is anybody to look after

    def run(self) -> None:
        while True:
            if self._stirred.is_set():
                self._stirred.clear()
                self._be_alert()
            try:
                wait_s = self.check()
                rest_s = self._rest_s()
            except Exception as error:  # whatever it is, nobody else looks after this sandbox
                self._report(error)
                wait_s, rest_s = limits.MEMORY_GUARD_POLL_S_MAX, 0.0
            if rest_s:
                # To wake up is what a look costs (seen: half a millisecond of CPU), and most sandboxes mostly rest.
                self._stirred.wait(rest_s)
            else:
                time.sleep(wait_s)

    def _report(self, error: Exception) -> None:
        """To the console of the sandbox, once for what happens again and again."""
        if repr(error) != self._reported:
            self._reported = repr(error)
            sys.excepthook(type(error), error, error.__traceback__)

    def _be_alert(self) -> None:
        self._alert_until_s = time.monotonic() + limits.MEMORY_GUARD_ALERT_S

    def _rest_s(self) -> float:
        """For how long nobody needs to look in here; 0 is not at all.

        Whether there is anybody is asked now and then only: while memory fills, every look that is not at memory comes
        too late for another.
        """
        now_s = time.monotonic()
        if now_s >= self._alert_until_s and (leased_s := self._leased_s()):
            return leased_s
        if now_s - self._asked_s < limits.MEMORY_GUARD_POLL_S_MAX:
            return 0.0
        self._asked_s = now_s
        return limits.MEMORY_GUARD_REST_S if self.nobody() else 0.0

    def nobody(self) -> bool:
        """Whether there is no process that could be ended, so that there is nothing to look after."""
        own = self._own_pids(())
        return not any(pid not in own and pid != 1 for pid in tree.pids())

    def check(self) -> float:
        """Look once and act; how long to wait before the next look."""
        sizes = self._read()
        reserve = reserve_bytes(sizes.get("MemTotal", 0))
        available = sizes.get("MemAvailable", reserve + 1)
        if available + limits.MEMORY_GUARD_GROWTH_BYTES_MIN <= self._available:
            self._be_alert()
        self._available = available
        if available <= reserve:
            with all_held():
                self._relieve(reserve - available)
        return pause_s(available, reserve)

    def _relieve(self, missing_bytes: int) -> None:
        """End who fills memory; while that of an ended one is on its way back, only those who go on with its work."""
        entries = self._look()
        own = self._own_pids(entries)
        now_s = time.monotonic()
        self._ended = [one for one in self._ended if one.until_s > now_s]
        hogs = growing_mates(entries, self._before, self._ended, own)
        if not hogs and sum(one.memory_bytes for one in self._ended) <= missing_bytes:
            victim = choose_victim(entries, own)
            if victim is not None and victim.memory_bytes >= limits.MEMORY_GUARD_VICTIM_BYTES_MIN:
                hogs = pack_of(entries, victim, own)
        for hog in hogs:
            self._end(hog, entries)
            until_s = now_s + limits.MEMORY_GUARD_RETURN_S
            self._ended.append(Ended(hog.pid, hog.session, hog.memory_bytes, until_s))
        self._before = {entry.pid: entry.memory_bytes for entry in entries}

    def _end(self, victim: tree.Entry, entries: list[tree.Entry]) -> None:
        live = {process.pid: process for process in self._processes.all() if process.status is None}
        owner = tree.owner_of(entries, victim.pid, live)
        if owner is None:
            owner = tree.marked_as(victim.pid, {process.mark: pid for pid, process in live.items()})
        if owner is not None:
            live[owner].oom = True  # before the signal, so that its exit cannot be reported without it
        if tree.send(victim.pid, signal.SIGKILL):
            self.kills += 1
            self.last_kills.append(Kill(time.time(), victim.pid, victim.name, victim.memory_bytes))
