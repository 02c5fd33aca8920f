"""The output of one stream: a bounded window on all bytes ever written, readable again from any offset.

Offsets count from the first byte of the stream and never go back. One writer appends; any number of readers read.
Readers that are registered as followers hold the writer up for a while when all of them are slow. One that is slower
than another is waited for by nobody: it reads what is still here, at its own pace, and is told what it lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from atoll.model import limits


class Budget:
    """Memory for all rings, shared in equal parts."""

    def __init__(self, total_bytes: int = limits.RING_TOTAL_BYTES_MAX) -> None:
        self._total_bytes = total_bytes
        self._rings = 0
        self.appended_at_s = time.monotonic()
        """When there last was any output."""

    def join(self) -> None:
        self._rings += 1

    def leave(self) -> None:
        self._rings -= 1

    def share_bytes(self) -> int:
        share = self._total_bytes // max(1, self._rings)
        return max(limits.RING_BYTES_MIN, min(limits.RING_BYTES_MAX, share))


class Follower:
    """A reader that the writer waits for, if no other one is further. `wake` is called when there is something new."""

    def __init__(self, position: int, wake: Callable[[], None]) -> None:
        self.position = position
        self.wake = wake
        self.progressed_at = time.monotonic()


class Ring:
    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        self._window = bytearray()
        self._start = 0
        self._followers: list[Follower] = []
        budget.join()

    @property
    def start(self) -> int:
        """Offset of the oldest byte that is still here."""
        return self._start

    @property
    def end(self) -> int:
        """Offset after the newest byte."""
        return self._start + len(self._window)

    def append(self, data: bytes) -> None:
        self._budget.appended_at_s = time.monotonic()
        with self._lock:
            self._window += data
            excess = len(self._window) - self._budget.share_bytes()
            if excess > 0:
                del self._window[:excess]
                self._start += excess
            followers = tuple(self._followers)
        for follower in followers:
            follower.wake()

    def read(self, offset: int, count_max: int) -> tuple[int, bytes]:
        """Bytes from `offset` on, and where they really begin: later than asked when older ones were dropped."""
        with self._lock:
            begin = max(offset, self._start)
            low = begin - self._start
            with memoryview(self._window) as view:
                return begin, bytes(view[low : low + count_max])

    def room_bytes(self, now_s: float) -> int:
        """How much may be appended without taking bytes from the foremost of the followers that are still reading."""
        with self._lock:
            reading = [
                follower.position
                for follower in self._followers
                if now_s - follower.progressed_at < limits.FOLLOWER_STALL_S_MAX
            ]
            share = self._budget.share_bytes()
            return share if not reading else share - (self.end - max(self._start, *reading))

    def follow(self, follower: Follower) -> None:
        with self._lock:
            self._followers.append(follower)

    def unfollow(self, follower: Follower) -> None:
        with self._lock:
            if follower in self._followers:
                self._followers.remove(follower)

    def advance(self, follower: Follower, position: int) -> None:
        follower.position = position
        follower.progressed_at = time.monotonic()

    def release(self) -> None:
        """Give the memory back; the offsets stay true."""
        with self._lock:
            self._start = self.end
            self._window = bytearray()
        self._budget.leave()
