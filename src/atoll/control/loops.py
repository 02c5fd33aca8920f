"""Loops that go on as long as the server does, whatever a round of them meets."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import anyio
import structlog

from atoll.model import limits
from atoll.model.errors import Unavailable

log = structlog.get_logger(__name__)


async def forever(step: Callable[[], Awaitable[None]]) -> None:
    """Repeat a step; an error of one round is reported and does not end the loop.

    The same error again is told once a minute: a database that is away for a night must not fill the disk with its
    absence. One that is expected, because something is away, has no traceback.
    """
    name = getattr(step, "__qualname__", repr(step))  # a partial has none
    told, told_at_s, missed = "", 0.0, 0
    while True:
        try:
            await step()
            told = ""
        except Exception as error:  # the loop keeps promises to all sandboxes: whatever one round meets, the next runs
            missed += 1
            now_s = time.monotonic()
            kind = f"{type(error).__name__}: {getattr(error, 'code', error)}"
            if kind != told or now_s - told_at_s >= limits.LOOP_TOLD_S:
                if isinstance(error, Unavailable):
                    log.warning("loop_waits", step=name, error=repr(error), rounds=missed)
                else:
                    log.exception("loop_failed", step=name, rounds=missed)
                told, told_at_s, missed = kind, now_s, 0
            await anyio.sleep(limits.LOOP_RETRY_S)
