"""One thread that moves what children write into their rings and on to who follows, hears from the spawners, and
keeps the timers.

A stream whose ring is full of bytes that a follower has not read yet is left alone for a while (its writer blocks, as
on any pipe); `nudge` or the stall limit brings it back.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import heapq
import itertools
import os
import selectors
import struct
import sys
import termios
import threading
import time
from collections import deque
from collections.abc import Callable

from atoll.guest.ring import Ring
from atoll.model import limits


class Stream:
    """The reading end of one pipe or terminal, which must not block."""

    def __init__(self, fd: int, ring: Ring, on_change: Callable[[], None]) -> None:
        self.fd = fd
        self.ring = ring
        self.on_change = on_change  # called in the pump's thread, after bytes or the end
        self.ended = False
        self.paused = False
        self.resting = False
        self._taking = False  # bytes may be between the pipe and the ring
        self.read_at_s = 0.0
        self.small_reads = 0  # in a row, each soon after the one before
        self.settle_offset: int | None = None  # set when the program ended: what it wrote itself ends here

    @property
    def settled(self) -> bool:
        """All that the program itself wrote is in the ring, whoever else still holds the other end."""
        return self.ended or (self.settle_offset is not None and self.ring.end >= self.settle_offset)

    def waiting_bytes(self) -> int:
        try:
            return int(struct.unpack("i", fcntl.ioctl(self.fd, termios.FIONREAD, b"\0\0\0\0"))[0])
        except OSError:
            return 0

    def all_taken(self) -> bool:
        """All that was written so far is in the ring. Asked in this order, bytes on their way are always seen."""
        return self.ended or not (self.waiting_bytes() or self._taking)

    def take(self, room: int) -> bytes:
        """One read into the ring, in the pump's thread; nothing means the end."""
        self._taking = True
        try:
            data = os.read(self.fd, room)
            if data:
                self.ring.append(data)
            return data
        finally:
            self._taking = False


Timer = tuple[float, int, Callable[[], None]]  # when, a number that tells two of one moment apart, and what then


class Pump(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="pump", daemon=True)
        self._selector = selectors.DefaultSelector()
        self._calls: deque[Callable[[], None]] = deque()
        self._timers: list[Timer] = []
        self._numbers = itertools.count()
        self._paused: set[Stream] = set()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._wake_fd, selectors.EVENT_READ, self._woken)

    def call(self, function: Callable[[], None]) -> None:
        """Run this in the pump's thread, soon."""
        self._calls.append(function)
        if threading.get_ident() != self.ident:  # the pump itself looks before it waits
            os.eventfd_write(self._wake_fd, 1)

    def call_later(self, delay_s: float, function: Callable[[], None]) -> Timer:
        timer = (time.monotonic() + delay_s, next(self._numbers), function)
        if threading.get_ident() == self.ident:
            heapq.heappush(self._timers, timer)
        else:
            self.call(lambda: heapq.heappush(self._timers, timer))
        return timer

    def cancel(self, timer: Timer | None) -> None:
        """Let go of it and of what it holds, if it is still to come. Only in the pump's thread."""
        if timer in self._timers:  # they are few: as many as live programs have a time limit
            self._timers.remove(timer)
            heapq.heapify(self._timers)

    def add(self, stream: Stream) -> None:
        """Only in the pump's thread."""
        self._selector.register(stream.fd, selectors.EVENT_READ, lambda: self._read(stream))

    def drain(self, stream: Stream) -> None:
        """Take what there is of a program that has ended, and watch the stream only if others may write to it. Only in
        the pump's thread.
        """
        total = 0
        while total < limits.PIPE_BYTES and (room := stream.ring.room_bytes(time.monotonic())) > 0:
            count = self._take(stream, room)
            if count <= 0:
                break
            total += count
        if not stream.ended:
            self.add(stream)

    def add_reader(self, fd: int, function: Callable[[], None]) -> None:
        self.call(lambda: self.watch(fd, selectors.EVENT_READ, function))

    def watch(self, fd: int, events: int, function: Callable[[], None]) -> None:
        """Call this when one of these events happens to the descriptor; none ends it. Only in the pump's thread."""
        known = self._selector.get_map().get(fd)
        if known is None and events:
            self._selector.register(fd, events, function)
        elif known is not None and not events:
            self._selector.unregister(fd)
        elif known is not None and known.events != events:
            self._selector.modify(fd, events, function)

    def remove_reader(self, fd: int) -> None:
        """Only in the pump's thread."""
        self._selector.unregister(fd)

    def nudge(self, stream: Stream) -> None:
        """A follower of this stream has read on."""
        if stream.paused:
            self.call(self._resume_paused)

    def run(self) -> None:
        while True:
            for key, _ in self._selector.select(self._wait_s()):
                if self._selector.get_map().get(key.fd) is key:  # else an earlier one of this round has ended it
                    self._do(key.data)
            while self._calls:
                self._do(self._calls.popleft())
            now_s = time.monotonic()
            while self._timers and self._timers[0][0] <= now_s:
                self._do(heapq.heappop(self._timers)[2])
            if self._paused:
                self._resume_paused()

    def _do(self, function: Callable[[], None]) -> None:
        """One fault of ours shall not be the end of every program in the sandbox."""
        try:
            function()
        except Exception:
            sys.excepthook(*sys.exc_info())

    def _wait_s(self) -> float | None:
        if self._calls:
            return 0
        wait_s = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
        if self._paused:
            wait_s = min(wait_s if wait_s is not None else 0.5, 0.5)
        return wait_s

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)

    def _resume_paused(self) -> None:
        now_s = time.monotonic()
        for stream in [stream for stream in self._paused if stream.ring.room_bytes(now_s) > 0]:
            self._paused.discard(stream)
            stream.paused = False
            if not stream.ended:
                self.add(stream)

    def _read(self, stream: Stream) -> None:
        room = stream.ring.room_bytes(time.monotonic())
        if room <= 0:
            self._selector.unregister(stream.fd)
            self._pause(stream)
            return
        count = self._take(stream, room)
        if count > 0:
            self._rest_if_busy(stream, count)

    def _pause(self, stream: Stream) -> None:
        stream.paused = True
        self._paused.add(stream)

    def _take(self, stream: Stream, room: int) -> int:
        """One read into the ring: how many bytes; 0 if there are none now, -1 if there will be none any more."""
        try:
            data = stream.take(min(room, limits.PUMP_READ_BYTES))
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno not in (errno.EIO, errno.EBADF):
                raise
            data = b""  # EIO: the last holder of a terminal is gone
        if not data:
            self.end(stream)
        stream.on_change()
        return len(data) or -1

    def _rest_if_busy(self, stream: Stream, count: int) -> None:
        """Let a program that writes little and often fill its pipe for a moment: each wake-up costs it and us more."""
        now_s = time.monotonic()
        soon = now_s - stream.read_at_s < limits.PUMP_REST_S
        stream.read_at_s = now_s
        stream.small_reads = stream.small_reads + 1 if soon and count < limits.PUMP_SMALL_BYTES else 0
        if stream.small_reads >= limits.PUMP_SMALL_READS_MAX:
            self._selector.unregister(stream.fd)
            stream.resting = True
            self._wake_later(stream)

    def _wake_later(self, stream: Stream) -> None:
        self.call_later(limits.PUMP_REST_S, lambda: self._wake(stream))

    def _wake(self, stream: Stream) -> None:
        """Take what has gathered meanwhile; a stream with which that was worth it rests again."""
        total = 0
        while stream.resting and total < limits.PIPE_BYTES:
            room = stream.ring.room_bytes(time.monotonic())
            if room <= 0:
                stream.resting = False
                self._pause(stream)
                return
            count = self._take(stream, room)
            if count <= 0:
                break
            total += count
        if not stream.resting:
            return  # it has ended
        if total >= limits.PUMP_SMALL_BYTES:
            self._wake_later(stream)
        else:
            stream.resting = False
            stream.small_reads = 0
            stream.read_at_s = time.monotonic()
            self.add(stream)

    def end(self, stream: Stream) -> None:
        """Only in the pump's thread."""
        if not stream.ended:
            stream.ended = True
            if stream.paused:
                self._paused.discard(stream)
            elif stream.resting:
                stream.resting = False
            else:
                self.watch(stream.fd, 0, stream.on_change)
            self.call(lambda: os.close(stream.fd))  # after what is to be sent
