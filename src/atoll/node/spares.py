"""Spare networks: namespace pairs made in advance, so that a create does not wait for the kernel.

A pair is used by one box and goes with it. It is not used again: connection tracking and neighbour tables of an earlier
life would be the only thing that two sandboxes ever share.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque

import anyio
import structlog

from atoll.model import limits
from atoll.model.errors import AtollError
from atoll.node.names import HostNames
from atoll.node.network import netns
from atoll.node.network.plan import Pair

log = structlog.get_logger("atoll.node")


class Spares:
    """The supply of one node; `run` keeps it full."""

    def __init__(self, names: HostNames) -> None:
        self._names = names
        self._ready: deque[Pair] = deque()
        self._wanted = asyncio.Event()

    def slot(self) -> str:
        """The slot of a pair that is ready, or a new one that is not made yet."""
        self._wanted.set()
        return self._ready.popleft().slot if self._ready else _slot_new()

    async def ensure(self, slot: str) -> None:
        """Make the pair of this slot, unless it was made in advance."""
        pair = Pair.of(self._names, slot)
        if not pair.exists():
            await _make(pair)

    async def run(self) -> None:
        """One at a time, so that a burst of creates is not slowed by its own supply."""
        while True:
            if len(self._ready) >= limits.NETWORKS_SPARE:
                self._wanted.clear()
                await self._wanted.wait()
            pair = Pair.of(self._names, _slot_new())
            try:
                await _make(pair)
            except AtollError as error:
                log.error("no spare network", error=repr(error), detail=error.detail)
                await asyncio.sleep(1)
                continue
            self._ready.append(pair)

    async def close(self) -> None:
        while self._ready:
            await netns.pair_remove(self._ready.popleft())


async def _make(pair: Pair) -> None:
    try:
        await netns.pair_create(pair)
    except BaseException:
        with anyio.CancelScope(shield=True), contextlib.suppress(AtollError):
            await netns.pair_remove(pair)
        raise


def _slot_new() -> str:
    return secrets.token_hex(4)
