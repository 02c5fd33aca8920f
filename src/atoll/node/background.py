"""Work that nobody waits for: whatever it meets is told in the log, and ends neither the server nor other work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVarTuple

import structlog

from atoll.model import limits

log = structlog.get_logger("atoll.node")

Arguments = TypeVarTuple("Arguments")


async def safely(act: Callable[[*Arguments], Awaitable[object]], *arguments: *Arguments) -> None:
    """Do something once. A machine that is out of files or memory for a moment takes what it is about, and no more."""
    try:
        await act(*arguments)
    except Exception as error:
        log.exception("work in the background failed", act=_name(act), detail=detail_of(error))


async def forever(run: Callable[[*Arguments], Awaitable[object]], *arguments: *Arguments) -> None:
    """Keep a loop going until it returns: after an error it begins anew, and the same error is told once a minute."""
    told, told_at_s = "", 0.0
    while True:
        try:
            await run(*arguments)
            return
        except Exception as error:
            now_s = time.monotonic()
            if repr(error) != told or now_s - told_at_s >= limits.LOOP_TOLD_S:
                log.exception("a loop failed", loop=_name(run), detail=detail_of(error))
                told, told_at_s = repr(error), now_s
        await asyncio.sleep(limits.LOOP_RETRY_S)


def detail_of(error: Exception) -> str:
    """What an error of ours says to the log only; nothing of any other."""
    return str(getattr(error, "detail", ""))[-2000:]


def _name(act: Callable[..., object]) -> str:
    return getattr(act, "__qualname__", repr(act))
