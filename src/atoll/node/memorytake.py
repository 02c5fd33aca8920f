"""The memory of a box on its way into an image: by way of the host's memory where there is room, else straight to disk.

By way of memory its runtime has done in half the time, and the box may go on while the rest reaches the disk. That of
an image that is only passing stays in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType

import anyio

from atoll.model import limits
from atoll.node import admission
from atoll.node.host import Host
from atoll.node.journal import Entry
from atoll.node.outflow import Inflow, Kept, Outflow
from atoll.node.runtime.base import Box


class MemoryTake:
    """Used once: enter, `write`, `hashes`. On exit nothing of it is left but the files."""

    def __init__(self, host: Host, box: Box, entry: Entry, image_id: str, *, asleep: bool, passing: bool) -> None:
        self._host = host
        self._image_id = image_id
        self._asleep = asleep
        self._passing = passing
        self._box = box
        self._resources = entry.resources
        self._cgroup = host.names.cgroup(entry.box_id)
        self._folder = host.images.memory_path(image_id)
        self._raised = False
        self._outflow: Outflow | Kept | None = None
        self._flown: asyncio.Future[str] | None = None

    async def __aenter__(self) -> MemoryTake:
        used_bytes = self._host.cgroups.usage(self._cgroup).memory_bytes
        if self._box.bulk and admission.fits_beside(used_bytes, admission.host_memory()):
            programs_bytes = self._host.cgroups.memory_gauge(self._cgroup).shared_bytes()
            self._limit_raise(used_bytes)
            self._outflow = self._way()
            with anyio.CancelScope(shield=True):  # its descriptor must not be closed meanwhile
                await asyncio.to_thread(self._outflow.make_room, programs_bytes)
            self._flown = asyncio.get_running_loop().run_in_executor(None, self._outflow.run)
        return self

    def _way(self) -> Outflow | Kept:
        if self._passing and not self._raised:  # else it must be given back soon
            return Kept(self._host.images.keep(self._image_id, self._box.bulk))
        # While it stands still for a moment only, its runtime shall have the processors.
        digest = self._host.images.key.begin()
        return Outflow(self._folder / self._box.bulk, digest, patient=not self._asleep)

    async def write(self, disk_take: Callable[[], None]) -> None:
        """By the box's runtime. Its disk is taken as soon as that has written to it for the last time, in a thread.

        Afterwards the box may go on.
        """
        if self._outflow is None:
            await self._box.snapshot(self._folder)
            await asyncio.to_thread(disk_take)
            return
        taking = asyncio.get_running_loop().run_in_executor(None, self._disk_take, self._outflow, disk_take)
        try:
            await self._box.snapshot(self._folder, self._outflow.fd)
        finally:
            self._outflow.finish()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([taking])
        if not taking.result():
            await asyncio.to_thread(disk_take)

    @staticmethod
    def _disk_take(outflow: Inflow, disk_take: Callable[[], None]) -> bool:
        """While the memory is written, of which the first byte says that the disk is done. Whether there was any."""
        begun = outflow.wait_begun()
        if begun:
            disk_take()
        return begun

    async def hashes(self) -> dict[str, str]:
        """When all of it is written out: the hashes of the files as far as they are known by then."""
        return {self._box.bulk: await self._flown} if self._flown is not None else {}

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._outflow is None or self._flown is None:
            return
        with anyio.CancelScope(shield=True):
            self._outflow.finish()
            with contextlib.suppress(Exception):  # who wanted the hashes has heard of it
                await self._flown
            self._outflow.close()
            if self._raised:
                await self._limit_again()

    def _limit_raise(self, used_bytes: int) -> None:
        """What its runtime writes to memory is charged to the box: for this while it may have as much again."""
        self._raised = 2 * used_bytes > self._resources.memory_bytes
        if self._raised:
            twice = replace(self._resources, memory_bytes=self._resources.memory_bytes + used_bytes)
            self._host.cgroups.update(self._cgroup, twice)

    async def _limit_again(self) -> None:
        """The limits that it had. The kernel refuses for as long as the runtime has not let go of what it wrote."""
        until_s = time.monotonic() + limits.LIMIT_AGAIN_S_MAX
        while True:
            try:
                self._host.cgroups.update(self._cgroup, self._resources)
            except FileNotFoundError:
                return  # it has ended meanwhile
            except OSError:
                if time.monotonic() > until_s:
                    raise
                await asyncio.sleep(0.001)
            else:
                return
