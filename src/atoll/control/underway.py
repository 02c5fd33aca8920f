"""What is under way, told of once it lasts: a stream of hours is not heard of only at its end.

What is short costs an entry in a dictionary, and the log nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from atoll.model import limits


@dataclass(eq=False, slots=True)
class Lasting:
    """One thing that has begun, and what is to be called if it lasts."""

    tell: Callable[[], None]
    begun_s: float
    told: bool = False

    @property
    def lasted_s(self) -> float:
        return time.monotonic() - self.begun_s


class Underway:
    """All that have begun and were not told of yet, the oldest first."""

    def __init__(self) -> None:
        self._untold: dict[Lasting, None] = {}
        self._began = anyio.Event()

    def begin(self, tell: Callable[[], None]) -> Lasting:
        one = Lasting(tell, time.monotonic())
        if not self._untold:
            self._began.set()
        self._untold[one] = None
        return one

    def end(self, one: Lasting) -> None:
        self._untold.pop(one, None)

    async def step(self) -> None:
        """Wait until something has lasted, and tell of all that have."""
        while not self._untold:
            self._began = anyio.Event()
            await self._began.wait()
        oldest = next(iter(self._untold))
        await anyio.sleep(max(0.0, limits.LASTING_S - oldest.lasted_s))
        for one in list(self._untold):
            if one.lasted_s < limits.LASTING_S:
                break
            del self._untold[one]
            one.told = True
            one.tell()
