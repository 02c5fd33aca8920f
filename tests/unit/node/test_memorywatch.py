"""Who may rest and who is woken up, by what a control group says; the guests are lines."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from atoll.model import limits
from atoll.model.errors import GuestFailed
from atoll.node.memorywatch import MemoryWatch, Watched
from atoll.wire import guest

pytestmark = pytest.mark.anyio

MIB = limits.MIB
TOTAL = limits.GIB


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Box:
    """A sandbox as it is seen from outside: a gauge, and a guest that takes lines."""

    def __init__(self) -> None:
        self.used, self.held = 100 * MIB, 60 * MIB
        self.gone = self.closed = self.refuses = self.still = False
        self.looked = 0
        self.slow: asyncio.Event | None = None  # set when it may answer
        self.lines: list[socket.socket] = []
        self.words = b""  # that were said on the last line
        self.watched = Watched(self, TOTAL, self.line, lambda: self.still)  # type: ignore[arg-type]

    def used_bytes(self) -> int:
        self.looked += 1
        if self.gone:
            raise FileNotFoundError
        return self.used

    def held_bytes(self) -> int:
        return self.held

    def close(self) -> None:
        self.closed = True

    async def line(self) -> socket.socket:
        if self.refuses:
            self.refuses = False
            raise GuestFailed("it does not answer", code="guest_timeout")
        if self.slow is not None:
            await self.slow.wait()
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self.lines.append(theirs)
        self.words = b""
        return ours

    def answer(self, words: bytes) -> int:
        """Answer what was said, with this; how many words there were."""
        try:
            said = self.lines[-1].recv(64)
            self.lines[-1].send(words)
        except BlockingIOError:
            return 0
        self.words += said
        return len(said)

    def told(self, word: bytes) -> bool:
        """Whether this was said last."""
        with contextlib.suppress(BlockingIOError):
            self.words += self.lines[-1].recv(64)
        return self.words.endswith(word)

    def was_told(self, word: bytes) -> bool:
        """Whether this was said since the words were forgotten, whatever came after it."""
        return self.told(word) or word in self.words

    def forget_words(self) -> None:
        self.told(b"")
        self.words = b""

    def hung_up(self) -> bool:
        """Whether the last line has ended."""
        try:
            while self.lines[-1].recv(64):
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
    for theirs in box.lines:
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
    assert box.told(guest.LINE_REST)
    box.used += limits.MEMORY_WATCH_MOVE_BYTES - 1
    await looks(box, 3)
    assert box.told(guest.LINE_REST)
    box.forget_words()
    box.used += 1
    await wait_for(lambda: box.was_told(guest.LINE_LOOK))
    await wait_for(lambda: box.told(guest.LINE_REST))  # again, where it is now
    assert len(box.lines) == 1


async def test_slow_growth_is_growth(watch: MemoryWatch, box: Box) -> None:
    await wait_for(lambda: box.watched.resting)
    box.forget_words()
    for _ in range(20):
        box.used += MIB
        await looks(box, 1)
    await wait_for(lambda: box.was_told(guest.LINE_LOOK))


async def test_what_was_given_back_does_not_hide_what_is_taken_again(watch: MemoryWatch, box: Box) -> None:
    await wait_for(lambda: box.watched.resting)
    box.used -= 50 * MIB
    await looks(box, 3)
    box.forget_words()
    box.used += 20 * MIB
    await wait_for(lambda: box.was_told(guest.LINE_LOOK))


async def test_one_that_is_near_its_limit_looks_itself(watch: MemoryWatch, box: Box) -> None:
    """Each time so little more that it is no move; the files that the kernel keeps do not count."""
    await wait_for(lambda: box.watched.resting)
    box.forget_words()
    box.used = TOTAL - MIB
    await wait_for(lambda: box.was_told(guest.LINE_LOOK))
    await wait_for(lambda: box.told(guest.LINE_REST))
    box.held = TOTAL - MIB
    await wait_for(lambda: box.told(guest.LINE_LOOK))
    await asyncio.sleep(4 * limits.MEMORY_WATCH_CALM_S)
    assert box.told(guest.LINE_LOOK)


async def test_one_that_never_rests_has_a_line_too(
    watch: MemoryWatch, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MEMORY_WATCH_SIGN_S", 0.02)
    box.held = box.used = TOTAL - MIB
    await wait_for(lambda: box.lines)
    for count in (b"5\n", b"17\n"):
        await wait_for(lambda count=count: box.answer(count))  # type: ignore[misc]
        await wait_for(lambda count=count: box.watched.processes == int(count))  # type: ignore[misc]
    assert guest.LINE_REST not in box.words
    assert not box.watched.resting


async def test_one_that_stands_still_is_not_asked(watch: MemoryWatch, box: Box) -> None:
    box.still = True
    await asyncio.sleep(3 * limits.MEMORY_WATCH_CALM_S)
    assert not box.lines
    box.still = False
    await wait_for(lambda: box.watched.resting)


async def test_signs_of_life_are_given_and_heard(watch: MemoryWatch, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MEMORY_WATCH_SIGN_S", 0.02)
    await wait_for(lambda: box.watched.resting)
    opened_s = box.watched._heard_s
    await wait_for(lambda: box.answer(b"3\n") and box.watched._heard_s > opened_s)
    assert box.watched.processes == 3
    await wait_for(lambda: not box.watched.heard_lately())  # nobody answers any more
    box.lines[-1].close()
    await wait_for(lambda: len(box.lines) == 2)  # a guest that was restored has lost it, and gets another
    assert box.watched.processes == 3


async def test_a_line_that_comes_too_late_is_hung_up(box: Box) -> None:
    """Its sandbox was stopped for a moment, or is gone."""
    opening = asyncio.ensure_future(box.watched.open())
    box.slow = asyncio.Event()
    await asyncio.sleep(0)
    box.watched.hang_up()
    box.slow.set()
    await opening
    assert box.hung_up()
    assert not box.watched.heard_lately()
    box.lines[-1].close()


async def test_a_guest_may_say_anything(watch: MemoryWatch, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MEMORY_WATCH_SIGN_S", 0.005)
    await wait_for(lambda: box.watched.resting)
    for said in (b"-3", b"\n", b"12345678\n", b"x" * 64, "٣".encode(), b"1e3"):
        heard_s = box.watched._heard_s
        await wait_for(lambda said=said: box.answer(said))  # type: ignore[misc]
        await wait_for(lambda heard_s=heard_s: box.watched._heard_s > heard_s)  # type: ignore[misc]
        assert box.watched.processes is None
    await wait_for(lambda: box.answer(b"9\n") and box.watched.processes == 9)


async def test_a_guest_that_fails_is_asked_again(watch: MemoryWatch, box: Box) -> None:
    box.refuses = True
    await wait_for(lambda: box.watched.resting)


async def test_a_group_that_is_gone_is_forgotten(watch: MemoryWatch, box: Box) -> None:
    await wait_for(lambda: box.watched.resting)
    box.gone = True
    await wait_for(lambda: box.closed)
    assert box.hung_up()
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
    assert box.hung_up()
    box.lines[-1].close()
