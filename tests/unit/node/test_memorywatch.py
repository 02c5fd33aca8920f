"""Who may rest and who is woken up, by what a control group says; the guests are connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from atoll.model import limits
from atoll.model.errors import GuestFailed
from atoll.node.memorywatch import MemoryWatch, Watched

pytestmark = pytest.mark.anyio

MIB = limits.MIB
TOTAL = limits.GIB


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Box:
    """A sandbox as it is seen from outside: a gauge, and a guest that takes leases."""

    def __init__(self) -> None:
        self.used, self.held = 100 * MIB, 60 * MIB
        self.gone = self.closed = self.refuses = self.still = False
        self.looked = 0
        self.leases: list[socket.socket] = []
        self.watched = Watched(self, TOTAL, self.lease, lambda: self.still)  # type: ignore[arg-type]

    def used_bytes(self) -> int:
        self.looked += 1
        if self.gone:
            raise FileNotFoundError
        return self.used

    def held_bytes(self) -> int:
        return self.held

    def close(self) -> None:
        self.closed = True

    async def lease(self) -> socket.socket:
        if self.refuses:
            self.refuses = False
            raise GuestFailed("it does not answer", code="guest_timeout")
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self.leases.append(theirs)
        return ours

    def heard_after(self, moment_s: float) -> bool:
        """Answer what was said; whether an answer was heard since."""
        with contextlib.suppress(BlockingIOError):
            self.leases[-1].send(self.leases[-1].recv(64))
        return self.watched._heard_s > moment_s

    def woken(self) -> bool:
        """Whether the last lease has ended."""
        try:
            while self.leases[-1].recv(64):
                pass
        except BlockingIOError:
            return False
        return True


@pytest.fixture
def box() -> Box:
    return Box()


@pytest.fixture
async def watch(box: Box, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MemoryWatch]:
    monkeypatch.setattr(limits, "MEMORY_WATCH_EVERY_S", 0.001)
    monkeypatch.setattr(limits, "MEMORY_WATCH_CALM_S", 0.05)
    watch = MemoryWatch()
    watch.add(box.watched)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(watch.run())
        yield watch
        running.cancel()
    for theirs in box.leases:
        theirs.close()


async def wait_for(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.001)


async def looks(box: Box, count: int) -> None:
    until = box.looked + count
    await wait_for(lambda: box.looked >= until)


async def test_one_that_is_calm_may_rest_and_is_woken_when_its_memory_grows(watch: MemoryWatch, box: Box) -> None:
    await wait_for(lambda: box.watched.resting)
    box.used += limits.MEMORY_WATCH_MOVE_BYTES - 1
    await looks(box, 3)
    assert not box.woken()
    box.used += 1
    await wait_for(box.woken)
    await wait_for(lambda: box.watched.resting)  # again, where it is now
    assert len(box.leases) == 2


async def test_slow_growth_is_growth(watch: MemoryWatch, box: Box) -> None:
    await wait_for(lambda: box.watched.resting)
    for _ in range(20):
        box.used += MIB
        await looks(box, 1)
    await wait_for(lambda: len(box.leases) > 1 or box.woken())


async def test_what_was_given_back_does_not_hide_what_is_taken_again(watch: MemoryWatch, box: Box) -> None:
    await wait_for(lambda: box.watched.resting)
    box.used -= 50 * MIB
    await looks(box, 3)
    box.used += 20 * MIB
    await wait_for(box.woken)


async def test_one_that_is_near_its_limit_looks_itself(watch: MemoryWatch, box: Box) -> None:
    """Each time so little more that it is no move; the files that the kernel keeps do not count."""
    await wait_for(lambda: box.watched.resting)
    box.used = TOTAL - MIB
    await wait_for(box.woken)
    await wait_for(lambda: box.watched.resting)
    box.held = TOTAL - MIB
    await wait_for(box.woken)
    leases = len(box.leases)
    await asyncio.sleep(4 * limits.MEMORY_WATCH_CALM_S)
    assert len(box.leases) == leases


async def test_one_that_stands_still_is_not_asked(watch: MemoryWatch, box: Box) -> None:
    box.still = True
    await asyncio.sleep(3 * limits.MEMORY_WATCH_CALM_S)
    assert not box.leases
    box.still = False
    await wait_for(lambda: box.watched.resting)


async def test_signs_of_life_are_given_and_heard(watch: MemoryWatch, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MEMORY_WATCH_SIGN_S", 0.02)
    await wait_for(lambda: box.watched.resting)
    leased_s = box.watched._heard_s
    await wait_for(lambda: box.heard_after(leased_s))
    await wait_for(lambda: not box.watched.heard_lately())  # nobody answers any more
    box.leases[-1].close()
    await wait_for(lambda: len(box.leases) == 2)  # a guest that was restored has lost it, and gets another


async def test_a_guest_that_fails_is_asked_again(watch: MemoryWatch, box: Box) -> None:
    box.refuses = True
    await wait_for(lambda: box.watched.resting)


async def test_a_group_that_is_gone_is_forgotten(watch: MemoryWatch, box: Box) -> None:
    await wait_for(lambda: box.watched.resting)
    box.gone = True
    await wait_for(lambda: box.closed)
    assert box.woken()
    watch.remove(box.watched)  # what is gone may be taken away again


async def test_when_the_watch_ends_every_guard_is_woken(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MEMORY_WATCH_EVERY_S", 0.001)
    monkeypatch.setattr(limits, "MEMORY_WATCH_CALM_S", 0.0)
    watch = MemoryWatch()
    watch.add(box.watched)
    running = asyncio.ensure_future(watch.run())
    await wait_for(lambda: box.watched.resting)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert box.woken()
    box.leases[-1].close()
