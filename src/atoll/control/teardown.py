"""Ends that are carried out until they are done, whoever waits for them and whoever has stopped waiting.

One job for each sandbox: write what happened on record, have the node remove everything, write that it is gone and
what it has used. A step that fails is tried again with growing pauses. A server that stops in the middle finishes at
its next start, because the record says `ending` before anything is removed.
"""

from __future__ import annotations

import anyio
import structlog
from anyio.abc import TaskGroup

from atoll.control.ledger import Ledger
from atoll.control.reconcile import GONE, Action
from atoll.control.usage import Metering, Reading
from atoll.model import limits
from atoll.model.sandbox import Sandbox
from atoll.wire.node import NodePort

log = structlog.get_logger(__name__)


class Job:
    """One end under way."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        """Set when all is gone and on record."""
        self.sandbox: Sandbox | None = None
        """What is known of it then."""
        self.reading: Reading | None = None
        """What it had used when the node had it still; kept, because another attempt could not tell any more."""

    async def wait(self) -> Sandbox | None:
        await self.done.wait()
        return self.sandbox


class Teardown:
    """The jobs in progress, by sandbox."""

    def __init__(self, ledger: Ledger, node: NodePort, metering: Metering, tasks: TaskGroup) -> None:
        self._ledger = ledger
        self._node = node
        self._metering = metering
        self._tasks = tasks
        self._jobs: dict[str, Job] = {}

    def begin(self, action: Action, after: anyio.Event | None = None) -> Job:
        """Start the job, or find the one that is on its way.

        With `after` the node is asked only once that event is set: a sandbox that is still being made has someone else
        at work on it.
        """
        job = self._jobs.get(action.sandbox_id)
        if job is None:
            job = self._jobs[action.sandbox_id] = Job()
            self._tasks.start_soon(self._run, action, after, job)
        return job

    async def wait_idle(self) -> None:
        """Return when no job is in progress."""
        while self._jobs:
            await next(iter(self._jobs.values())).wait()

    async def _run(self, action: Action, after: anyio.Event | None, job: Job) -> None:
        pause_s = limits.TEARDOWN_RETRY_S_MIN
        try:
            while not await self._attempt(action, after, job):
                if self._tasks.cancel_scope.cancel_called:
                    return  # a job that was begun during the stop may not hear of it: the next start finishes it
                await anyio.sleep(pause_s)
                pause_s = min(pause_s * 2, limits.TEARDOWN_RETRY_S_MAX)
        finally:
            del self._jobs[action.sandbox_id]
            job.done.set()

    async def _attempt(self, action: Action, after: anyio.Event | None, job: Job) -> bool:
        sandbox_id = action.sandbox_id
        try:
            if action.first is not None:
                await self._ledger.advance(sandbox_id, action.first)
            if after is not None:
                await after.wait()
            job.reading = job.reading or await self._metering.reading(sandbox_id)
            await self._node.sandbox_destroy(sandbox_id)
            job.sandbox = await self._ledger.advance(sandbox_id, GONE, reading=job.reading)
        except Exception as error:  # whatever it is, the sandbox must go: report it and try again
            log.warning("teardown_failed", sandbox_id=sandbox_id, error=repr(error))
            return False
        return True
