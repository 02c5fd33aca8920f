from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable

import pytest

from atoll.guest import memory, tree
from atoll.guest.processes import Process, Spec, Table
from atoll.guest.pump import Pump
from atoll.guest.ring import Budget
from atoll.guest.users import User
from atoll.model import limits
from atoll.model.headroom import reserve_bytes

ROOT = User("root", 0, 0, (0,), "/root", "/bin/sh")


def entry(pid: int, size: int, state: str = "S", session: int = 0) -> tree.Entry:
    return tree.Entry(pid, 1, pid, session or pid, state, "x", 0.0, 1, size)


def none_own(_entries: Iterable[tree.Entry]) -> set[int]:
    return set()


def test_meminfo_is_read_in_bytes() -> None:
    assert memory.parse_meminfo("MemTotal:  10 kB\nHuge: 3\nbad\n") == {"MemTotal": 10240, "Huge": 3}


def test_the_hungriest_but_never_our_own() -> None:
    entries = [entry(1, 900), entry(5, 800), entry(6, 100), entry(7, 700, "Z"), entry(8, 200)]
    assert memory.choose_victim(entries, spared={5}) == entry(8, 200)
    assert memory.choose_victim([entry(1, 900)], spared=()) is None


def test_it_looks_before_memory_can_be_used_up() -> None:
    reserve = reserve_bytes(512 * limits.MIB)
    for available in range(reserve, 512 * limits.MIB, limits.MIB):
        wait_s = memory.pause_s(available, reserve)
        used = wait_s * limits.MEMORY_GUARD_FILL_BYTES_PER_S
        assert used <= available - reserve or wait_s == limits.MEMORY_GUARD_POLL_S_MIN


def test_the_end_is_marked_before_it_comes() -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as child:
        table = Table(Pump())
        process = Process("x", Spec(["sleep"], {}, "/", ROOT), Budget())
        table._started(process, child.pid, None, None)
        sizes = {"MemTotal": limits.GIB, "MemAvailable": limits.MIB}
        seen = [entry(1, 2**40), entry(child.pid, 2**30)]
        guard = memory.MemoryGuard(none_own, table, lambda: sizes, lambda: seen)
        assert guard.check() == limits.MEMORY_GUARD_POLL_S_MIN
        assert child.wait() == -signal.SIGKILL
        assert (process.oom, guard.kills) == (True, 1)
        [kill] = guard.last_kills
        assert (kill.pid, kill.name, kill.memory_bytes) == (child.pid, "x", 2**30)


def test_a_victim_that_left_its_family_is_told_of_by_its_mark() -> None:
    """Its session is its own and its parent is gone: what is left is the variable that it was started with."""
    table = Table(Pump())
    process = Process("0a1b", Spec(["sh"], {}, "/", ROOT), Budget())
    table._started(process, 2**30, None, None)  # a pid that is not the victim's
    env = {"PATH": os.environ["PATH"], "ATOLL_PROCESS": "0a1b"}
    with subprocess.Popen(["sleep", "60"], start_new_session=True, env=env) as child:
        sizes = {"MemTotal": limits.GIB, "MemAvailable": limits.MIB}
        guard = memory.MemoryGuard(none_own, table, lambda: sizes, lambda: [entry(child.pid, 2**30)])
        guard.check()
        assert child.wait() == -signal.SIGKILL
    assert process.oom


def test_nothing_happens_while_there_is_enough() -> None:
    sizes = {"MemTotal": limits.GIB, "MemAvailable": 4 * limits.GIB}
    guard = memory.MemoryGuard(none_own, Table(Pump()), lambda: sizes, lambda: [entry(2, 1)])
    assert guard.check() == limits.MEMORY_GUARD_POLL_S_MAX
    assert guard.kills == 0


def test_forked_hogs_go_together_and_nobody_else() -> None:
    victim = entry(5, 800, session=5)
    entries = [victim, entry(6, 500, session=5), entry(7, 10, session=5), entry(8, 790, session=8)]
    assert [hog.pid for hog in memory.pack_of(entries, victim, spared=())] == [5, 6]


def test_memory_that_comes_back_spares_the_next() -> None:
    """The ended one's memory is not free at once."""
    sizes = {"MemTotal": limits.GIB, "MemAvailable": limits.MIB}
    seen = [entry(2**22 + 1, limits.GIB)]  # no such process
    guard = memory.MemoryGuard(none_own, Table(Pump()), lambda: sizes, lambda: seen)
    guard.check()
    seen[:] = [entry(2**22 + 2, 500 * limits.MIB)]
    ended: list[tree.Entry] = []
    guard._end = lambda victim, entries: ended.append(victim)  # type: ignore[method-assign]
    guard.check()
    assert not ended


def test_a_mate_of_an_ended_hog_that_goes_on_is_ended_too() -> None:
    """One of eight forked hogs may have been small at the first look: the memory that comes back is not for it."""
    sizes = {"MemTotal": limits.GIB, "MemAvailable": limits.MIB}
    hog, mate, parent, other = 2**22 + 1, 2**22 + 2, 2**22 + 3, 2**22 + 4
    mib = limits.MIB
    seen = [entry(hog, 800 * mib, session=9), entry(mate, 10 * mib, session=9), entry(parent, 30 * mib, session=9)]
    guard = memory.MemoryGuard(none_own, Table(Pump()), lambda: sizes, lambda: seen)
    ended: list[int] = []
    guard._end = lambda victim, entries: ended.append(victim.pid)  # type: ignore[method-assign]
    guard.check()
    assert ended == [hog]
    seen[1:] = [entry(mate, 40 * mib, session=9), entry(parent, 30 * mib, session=9), entry(other, 90 * mib)]
    guard.check()
    assert ended == [hog, mate]


def test_what_is_small_is_not_worth_ending() -> None:
    sizes = {"MemTotal": limits.GIB, "MemAvailable": limits.MIB}
    guard = memory.MemoryGuard(none_own, Table(Pump()), lambda: sizes, lambda: [entry(2**22 + 1, limits.MIB)])
    guard.check()
    assert guard.kills == 0


def test_it_rests_while_there_is_nobody_to_end_and_wakes_with_the_next() -> None:
    """On this host there is always somebody; who is its own is told here."""
    looks = threading.Semaphore(0)
    stirred = threading.Event()
    everybody = {int(name) for name in os.listdir("/proc") if name.isdecimal()}
    own = set(range(1, 2**22))

    def read() -> dict[str, int]:
        looks.release()
        return {"MemTotal": limits.GIB, "MemAvailable": limits.GIB}

    guard = memory.MemoryGuard(lambda _: own, Table(Pump()), read, stirred=stirred)
    assert guard.nobody()
    guard.start()
    assert looks.acquire(timeout=5)
    assert not looks.acquire(timeout=2 * limits.MEMORY_GUARD_POLL_S_MAX), "it rests"
    own -= everybody
    assert not guard.nobody()
    stirred.set()
    for _ in range(3):
        assert looks.acquire(timeout=5), "it looks again and again"
    own |= everybody  # the thread goes with the process; let it rest


def guard_with_lease(lease_s: list[float]) -> tuple[memory.MemoryGuard, threading.Semaphore, threading.Event]:
    """A guard in a crowd, and how often it looked. What the lease says can be changed."""
    looks, stirred = threading.Semaphore(0), threading.Event()

    def read() -> dict[str, int]:
        looks.release()
        return {"MemTotal": limits.GIB, "MemAvailable": limits.GIB}

    return (
        memory.MemoryGuard(none_own, Table(Pump()), read, stirred=stirred, leased_s=lambda: lease_s[0]),
        looks,
        stirred,
    )


def test_it_rests_while_the_node_looks_and_not_a_moment_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MEMORY_GUARD_ALERT_S", 0.2)
    lease_s = [60.0]
    guard, looks, stirred = guard_with_lease(lease_s)
    guard.start()
    assert looks.acquire(timeout=5)
    assert not looks.acquire(timeout=2 * limits.MEMORY_GUARD_POLL_S_MAX), "it rests"
    lease_s[0] = 0.0
    stirred.set()  # as the end of a lease does
    for _ in range(5):
        assert looks.acquire(timeout=5), "it looks again and again"
    lease_s[0] = 60.0  # the thread goes with the process; let it rest


def test_a_program_that_began_is_looked_at_for_a_while_whoever_else_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MEMORY_GUARD_ALERT_S", 3600.0)
    guard, looks, stirred = guard_with_lease([60.0])
    stirred.set()
    guard.start()
    for _ in range(3):
        assert looks.acquire(timeout=5), "it looks again and again"
    guard._alert_until_s = 0.0


def test_memory_that_moves_is_looked_at_whoever_else_looks() -> None:
    available = [limits.GIB]
    sizes = lambda: {"MemTotal": limits.GIB, "MemAvailable": available[0]}  # noqa: E731
    guard = memory.MemoryGuard(none_own, Table(Pump()), sizes, leased_s=lambda: 60.0)
    guard.check()
    guard.check()
    assert guard._rest_s() == 60.0
    available[0] -= limits.MEMORY_GUARD_GROWTH_BYTES_MIN
    guard.check()
    assert guard._rest_s() == 0.0


def test_an_error_does_not_end_the_guard_and_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any: what a program of the sandbox puts into /proc could be read wrongly, and then nobody would look any more."""
    monkeypatch.setattr(limits, "MEMORY_GUARD_POLL_S_MAX", 0.01)
    told: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, *_: told.append(kind))
    looks = iter([ValueError("not a number")] * 3 + [KeyboardInterrupt()])

    def read() -> dict[str, int]:
        raise next(looks)

    with pytest.raises(KeyboardInterrupt):  # the end of this test's guard
        memory.MemoryGuard(none_own, Table(Pump()), read, list).run()
    assert told == [ValueError]
