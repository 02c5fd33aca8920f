"""How many bytes a second go on from one sandbox or to it, on all connections together; what is beyond it rests.

A piece that never goes on, because its connection has ended or the rate has changed, is owed by nobody.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio

from atoll.model import limits


class Rate:
    """That of one sandbox; none, until one is set."""

    def __init__(self) -> None:
        self._per_s: int | None = None
        self._ready_s = 0.0
        self._changed = anyio.Event()
        self.resting: set[Callable[[], None]] = set()
        """What to call, once, when pieces that rest may go on sooner than they were told."""

    @property
    def piece_bytes(self) -> int:
        """How much to read at a time: a second's worth, so that none is owed for long by one connection."""
        return limits.EGRESS_CHUNK_BYTES if self._per_s is None else min(limits.EGRESS_CHUNK_BYTES, self._per_s)

    def set(self, per_s: int | None) -> None:
        """From now on. What rests by another rate goes on, and what comes next waits by this one."""
        if per_s == self._per_s:
            return
        self._per_s, self._ready_s = per_s, 0.0
        self._changed.set()
        self._changed = anyio.Event()
        resting, self.resting = self.resting, set()
        for call in resting:
            call()

    def take(self, count: int) -> float:
        """How many seconds to wait before what was taken goes on."""
        if self._per_s is None:
            return 0.0
        now_s = time.monotonic()
        # Whoever was idle may send a second's worth at once, no more.
        self._ready_s = max(self._ready_s, now_s - 1.0) + count / self._per_s
        return max(0.0, self._ready_s - now_s)

    def give_back(self, count: int) -> None:
        """What was taken will not go on."""
        if self._per_s is not None:
            self._ready_s -= count / self._per_s

    async def rest(self, wait_s: float, count: int) -> None:
        """Wait before what was taken goes on; it does not if this is cancelled."""
        changed = self._changed
        try:
            with anyio.move_on_after(wait_s):
                await changed.wait()
        except BaseException:
            if not changed.is_set():
                self.give_back(count)
            raise
