"""Ends that are carried out until they are done, whoever waits for them and whoever has stopped waiting.

One job for each sandbox: write what happened on record, have the node remove everything, write that it is gone. A step
that fails is tried again with growing pauses. A server that stops in the middle finishes at its next start, because the
record says `ending` before anything is removed.
"""

from __future__ import annotations

import anyio
import structlog
from anyio.abc import TaskGroup

from atoll.control.ledger import Ledger
from atoll.control.reconcile import Action
from atoll.control.usage import Metering
from atoll.model import limits
from atoll.wire.node import NodePort

log = structlog.get_logger(__name__)


class Teardown:
    """The jobs in progress, by sandbox."""

    def __init__(self, ledger: Ledger, node: NodePort, metering: Metering, tasks: TaskGroup) -> None:
        self._ledger = ledger
        self._node = node
        self._metering = metering
        self._tasks = tasks
        self._jobs: dict[str, anyio.Event] = {}

    def begin(self, action: Action, after: anyio.Event | None = None) -> anyio.Event:
        """Start the job, or find the one that is on its way; the event is set when all is gone and on record.

        With `after` the node is asked only once that event is set: a sandbox that is still being made has someone else
        at work on it.
        """
        done = self._jobs.get(action.sandbox_id)
        if done is None:
            done = self._jobs[action.sandbox_id] = anyio.Event()
            self._tasks.start_soon(self._run, action, after, done)
        return done

    async def wait_idle(self) -> None:
        """Return when no job is in progress."""
        while self._jobs:
            await next(iter(self._jobs.values())).wait()

    async def _run(self, action: Action, after: anyio.Event | None, done: anyio.Event) -> None:
        pause_s = limits.TEARDOWN_RETRY_S_MIN
        try:
            while not await self._attempt(action, after):
                if self._tasks.cancel_scope.cancel_called:
                    return  # a job that was begun during the stop may not hear of it: the next start finishes it
                await anyio.sleep(pause_s)
                pause_s = min(pause_s * 2, limits.TEARDOWN_RETRY_S_MAX)
        finally:
            del self._jobs[action.sandbox_id]
            done.set()

    async def _attempt(self, action: Action, after: anyio.Event | None) -> bool:
        try:
            if action.first is not None:
                await self._ledger.advance(action.sandbox_id, action.first)
            if after is not None:
                await after.wait()
            await self._metering.last(action.sandbox_id)
            await self._node.sandbox_destroy(action.sandbox_id)
            if action.last is not None:
                await self._ledger.advance(action.sandbox_id, action.last)
        except Exception as error:  # whatever it is, the sandbox must go: report it and try again
            log.warning("teardown_failed", sandbox_id=action.sandbox_id, error=repr(error))
            return False
        return True
