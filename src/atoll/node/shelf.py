"""What is ready of one template, and who waits for what is being made ready."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from atoll.model import limits
from atoll.model.template import Template
from atoll.node.images import Image
from atoll.node.instance import Instance


@dataclass
class Shelf:
    """What is ready of one template."""

    template: Template
    image: Image | None = None
    live: deque[Instance] = field(default_factory=deque)
    shells: deque[Instance] = field(default_factory=deque)
    asked_at_s: deque[float] = field(default_factory=deque)
    shells_asked_at_s: deque[float] = field(default_factory=deque)
    late_root: bool = False
    """Whether its shells can be given another disk than the template's."""
    coming: int = 0
    """How many are being brought to life."""
    _waiting: deque[asyncio.Future[Instance | None]] = field(default_factory=deque)

    def demand(self, now_s: float) -> int:
        """How many were asked for in the time that counts."""
        return _lately(self.asked_at_s, now_s)

    def shell_demand(self, now_s: float) -> int:
        """How many shells were asked for in that time, whether or not there were so many."""
        return _lately(self.shells_asked_at_s, now_s)

    def awaited(self) -> bool:
        """Whether somebody waits for what comes to life next."""
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft()
        return bool(self._waiting)

    async def wait_coming(self) -> Instance | None:
        """The next that comes to life, which is sooner than making another; None if none comes, or if it failed."""
        if self.coming <= sum(not one.done() for one in self._waiting):
            return None
        promised: asyncio.Future[Instance | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(promised)
        try:
            return await promised
        except asyncio.CancelledError:
            # It may have come in the very moment in which its owner left.
            if promised.done() and not promised.cancelled() and (instance := promised.result()) is not None:
                self.live.append(instance)
            raise

    def arrived(self, instance: Instance | None) -> None:
        """One has come to life, or not: it is for whoever waits longest, else for the shelf."""
        if self.awaited():
            self._waiting.popleft().set_result(instance)
        elif instance is not None:
            self.live.append(instance)


def _lately(asked_at_s: deque[float], now_s: float) -> int:
    while asked_at_s and now_s - asked_at_s[0] > limits.WARM_DEMAND_WINDOW_S:
        asked_at_s.popleft()
    return len(asked_at_s)
