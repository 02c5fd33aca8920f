"""The silence of a guest: how it is told that one answers no more, without waking those that are well too often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from atoll.model import limits
from atoll.model.errors import AtollError
from atoll.node.guestlink import GuestLink


async def wait_silent(guest: GuestLink, keeps_still: Callable[[], bool], heard_lately: Callable[[], bool]) -> None:
    """Returns when it did not answer several times in a row. One that `keeps_still` is not asked."""
    missed = heard = 0
    while missed < limits.PINGS_MISSED_MAX:
        await asyncio.sleep(limits.PING_EVERY_S)
        if keeps_still():
            continue
        if heard < limits.SIGNS_PER_PING and heard_lately():
            heard += 1  # it has answered as it rests, which wakes it less than a call does
            continue
        heard = 0
        try:
            async with asyncio.timeout(limits.PING_S_MAX):
                await guest.call("ping")
            missed = 0
        except (AtollError, TimeoutError):
            missed += 1
