"""The farewell that a dead box does not say: what its guest was asked ends when its process does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from atoll.node.guestlink import GuestLink
from atoll.node.runtime.base import Box


@asynccontextmanager
async def hung_up_if_dead(box: Box, guest: GuestLink) -> AsyncIterator[None]:
    """Within it a guest is waited for no longer than its box lives; else it would be for as long as a living one may
    take, which can be an hour.
    """

    async def watch() -> None:
        await box.wait_exited()
        guest.hang_up()

    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        try:
            yield
        except Exception as error:  # told below: a task group would hide it in a group
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
