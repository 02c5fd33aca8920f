"""Interpreters of copies that had to go, started again: one box after the other, and only while nobody waits for one.

Ten copies made in one call are made for seconds. Interpreters that start in the first of them meanwhile take the
processors from the last (seen: a third of both), and nobody has asked for them yet.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from atoll.model import limits
from atoll.node.background import safely

Start = Callable[[], Awaitable[None]]


class Rewarming:
    """Those of one node; no more than there are sandboxes, because each is added once, when it begins to live."""

    def __init__(self) -> None:
        self._waiting: deque[Start] = deque()
        self._some = asyncio.Event()

    def add(self, start: Start) -> None:
        """One whose interpreters are to be started; `start` must not raise, and do nothing if it has ended."""
        self._waiting.append(start)
        self._some.set()

    async def run(self, quiet_s: Callable[[], float]) -> None:
        """`quiet_s` says for how long nobody has waited for a sandbox."""
        while True:
            await self._some.wait()
            left_s = limits.CONTEXT_REWARM_S - quiet_s()
            if left_s > 0:
                await asyncio.sleep(left_s)
                continue
            await safely(self._waiting.popleft())
            if not self._waiting:
                self._some.clear()
