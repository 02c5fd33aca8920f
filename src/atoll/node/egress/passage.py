"""Bytes from one socket to the other and back, counted, until both have said all or nothing moves any more.

It is what most connections consist of, so it is lean: no task is woken for bytes that come. The loop calls when a
socket can be read, and what is read is written to the other one in the same turn. All passages share one buffer; what
the other end does not take at once is kept, and until it is gone nothing more is read. Many who do not read make the
pieces small:

    reading ─▶ written ─▶ reading           at its end: the other side hears of it, and the way is done
       └─▶ resting (a rate) ─▶ written
              └─▶ stuck (the other end does not read) ─▶ reading
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio

from atoll.model import limits
from atoll.node.egress.buffer import Buffer
from atoll.node.egress.channel import Plain
from atoll.node.egress.gate import Flow, Gate

Look = Callable[[bytes], bool | None]
"""Whether bytes from inside may pass; None: these may, and the next are to be looked at, too."""


class Idleness:
    """Calls when nothing has moved for too long. It wakes when that could be so, and not with every byte."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._call = call
        self._last_s = self._loop.time()
        self._timer = self._loop.call_later(limits.EGRESS_IDLE_S_MAX, self._look)

    def moved(self) -> None:
        self._last_s = self._loop.time()

    def stop(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        left_s = self._last_s + limits.EGRESS_IDLE_S_MAX - self._loop.time()
        if left_s <= 0:
            self._call()
        else:
            self._timer = self._loop.call_later(left_s, self._look)


@contextmanager
def ended_when_idle() -> Iterator[Idleness]:
    """The block ends when nothing has moved for too long, in either direction; whatever it waits for."""
    with anyio.CancelScope() as scope:
        idleness = Idleness(scope.cancel)
        try:
            yield idleness
        finally:
            idleness.stop()


class Passage:
    """Two sockets, joined."""

    def __init__(self, gate: Gate, flow: Flow, inside: Plain, outside: Plain, buffer: Buffer) -> None:
        self.gate = gate
        self.flow = flow
        self.buffer = buffer
        self._ended = asyncio.get_running_loop().create_future()
        self.idleness = Idleness(self.end)
        self._up = _Way(self, inside, outside, up=True)
        self._down = _Way(self, outside, inside, up=False)

    async def run(self, look: Look | None = None) -> None:
        """Until it ends. `look` sees the first bytes from inside and may object, which ends it all."""
        try:
            self._up.begin(look)
            self._down.begin()
            await self._ended
        finally:
            self.idleness.stop()
            self._up.stop()
            self._down.stop()

    def end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def fail(self, error: Exception) -> None:
        """What went wrong is raised where the passage is awaited; of an end that broke nobody needs to hear."""
        if isinstance(error, OSError):
            self.end()
        elif not self._ended.done():
            self._ended.set_exception(error)

    def way_done(self) -> None:
        if self._up.done and self._down.done:
            self.end()


class _Way:
    """One direction."""

    def __init__(self, passage: Passage, source: Plain, sink: Plain, *, up: bool) -> None:
        self.done = False
        self._passage = passage
        self._flow = passage.flow
        self._source = source
        self._sink = sink
        self._is_up = up
        self._loop = asyncio.get_running_loop()
        self._look: Look | None = None
        self._left = memoryview(b"")
        self._kept_bytes = 0
        self._rest: asyncio.TimerHandle | None = None
        self._is_stuck = False

    def begin(self, look: Look | None = None) -> None:
        """With what was read already, if anything was."""
        self._look = look
        first, self._source.first = self._source.first, b""
        if not first:
            self._source.when_readable(self._read)
            return
        try:
            self._carry(memoryview(first))
        except Exception as error:
            self._passage.fail(error)

    def stop(self) -> None:
        self._source.when_readable(None)
        if self._end_rest():
            self._passage.gate.rate.give_back(len(self._left))
        self._unstick()

    def _read(self) -> None:
        """Called by the loop."""
        try:
            if self._flow.cut_reason:  # its end is on the way
                self._source.when_readable(None)
            else:
                self._read_some()
        except Exception as error:
            self._passage.fail(error)

    def _read_some(self) -> None:
        buffer = self._passage.buffer.piece()[: self._passage.gate.rate.piece_bytes]
        try:
            size_bytes = self._source.socket.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return
        if size_bytes:
            self._carry(buffer[:size_bytes])
        else:
            self._finish()

    def _carry(self, data: memoryview) -> None:
        if self._look is not None and not self._may_pass(self._look, data):
            self._flow.cut("late_hello")
            return
        self._passage.idleness.moved()
        up, down = (len(data), 0) if self._is_up else (0, len(data))
        wait_s = self._passage.gate.count(self._flow, up=up, down=down)
        if self._flow.cut_reason:
            self._source.when_readable(None)
        elif wait_s > 0:
            self._source.when_readable(None)
            self._keep(data)
            self._rest = self._loop.call_later(wait_s, self._go_on)
            self._passage.gate.rate.resting.add(self._go_on)
        else:
            self._write(data)

    def _may_pass(self, look: Look, data: memoryview) -> bool:
        said = look(bytes(data))
        if said is not None:
            self._look = None
        return said is not False

    def _go_on(self) -> None:
        """Called by the loop, or because there is another rate: the rest is over."""
        self._end_rest()
        self._write_left()

    def _end_rest(self) -> bool:
        """Whether it rested until now."""
        rest, self._rest = self._rest, None
        if rest is not None:
            rest.cancel()
            self._passage.gate.rate.resting.discard(self._go_on)
        return rest is not None

    def _write_left(self) -> None:
        """Called by the loop: the other end reads again."""
        try:
            if not self._flow.cut_reason:
                self._write(self._left)
        except Exception as error:
            self._passage.fail(error)

    def _write(self, data: memoryview) -> None:
        try:
            sent = self._sink.socket.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        if sent == len(data):
            self._unstick()
            self._source.when_readable(self._read)
        else:
            self._stick(data[sent:])

    def _stick(self, left: memoryview) -> None:
        """Keep what the other end does not take, and read no more until it has."""
        if self._is_stuck:
            self._left = left
            return
        self._is_stuck = True
        self._keep(left)
        self._source.when_readable(None)
        self._loop.add_writer(self._sink.socket.fileno(), self._write_left)

    def _keep(self, left: memoryview) -> None:
        """As a copy: the buffer is everybody's."""
        self._left = memoryview(bytes(left))
        self._passage.buffer.waits(len(left) - self._kept_bytes)
        self._kept_bytes = len(left)

    def _unstick(self) -> None:
        if self._kept_bytes:
            self._keep(memoryview(b""))
        if self._is_stuck:
            self._is_stuck = False
            self._loop.remove_writer(self._sink.socket.fileno())

    def _finish(self) -> None:
        self.done = True
        self._source.when_readable(None)
        self._sink.end()
        self._passage.way_done()
