"""The first answer of a guest: the moment from which on a box lives."""

from __future__ import annotations

import asyncio
import time

import anyio

from atoll.model import limits
from atoll.model.errors import AtollError, GuestFailed
from atoll.node.ending import not_ready
from atoll.node.guestlink import GuestLink
from atoll.node.runtime.base import Box


async def first_answer(box: Box, guest: GuestLink) -> None:
    """Until the guest answers for the first time. While it boots, connections are refused at once."""
    exited = False
    deadline_s = time.monotonic() + limits.BOOT_S_MAX

    async def watch() -> None:
        nonlocal exited
        await box.wait_exited()
        exited = True
        guest.hang_up()  # a dead peer says no farewell

    failure: AtollError | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        while failure is None:
            try:
                await guest.call("ping")
                break
            except GuestFailed as error:
                if exited or time.monotonic() > deadline_s:
                    failure = not_ready(exited, f"{error.detail}\n{box.console()}")
                else:
                    await asyncio.sleep(0.001)
        tasks.cancel_scope.cancel()
    if failure is not None:  # raised here: a task group would hide it in a group
        raise failure
