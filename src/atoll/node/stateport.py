"""The part of a node's port that is about state: standby, pause, resume, rollback, and images."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager

import anyio
from anyio.abc import TaskGroup

from atoll.model import limits
from atoll.model.errors import AtollError, Conflict, Internal
from atoll.model.resources import Resources
from atoll.model.volume import VolumeMount
from atoll.node import standby, volumes
from atoll.node.background import safely
from atoll.node.host import Host
from atoll.node.instance import Instance
from atoll.node.introductions import Introductions
from atoll.node.snapshots import Snapshots
from atoll.node.steps import Steps
from atoll.node.transfers import Transfers
from atoll.wire.node import DiskChanges, ImageArrived, ImageTaken, SandboxOrder, SandboxStarted, Space


class StatePort(ABC):
    """A node's words about the state of sandboxes; the node itself adds the rest."""

    _host: Host
    _instances: dict[str, Instance]
    _introductions: Introductions
    _snapshots: Snapshots
    _transfers: Transfers
    _tasks: TaskGroup

    @abstractmethod
    def _instance(self, sandbox_id: str) -> Instance: ...

    @abstractmethod
    def _take_in(self, instance: Instance) -> None: ...

    @abstractmethod
    def _admitted(self, order: SandboxOrder) -> AbstractContextManager[None]: ...

    @abstractmethod
    async def _demolish(self, instance: Instance) -> None: ...

    @abstractmethod
    def _check_volumes(self, mounts: Sequence[VolumeMount]) -> None: ...

    async def sandbox_standby(self, sandbox_id: str) -> None:
        await self._introductions.wait(sandbox_id)
        instance = self._instance(sandbox_id)
        await instance.activity.wait_answered()
        await instance.freeze()
        self._tasks.start_soon(safely, standby.reclaim_later, self._host, instance)

    async def sandbox_wake(self, sandbox_id: str) -> None:
        instance = self._instance(sandbox_id)
        if instance.frozen:
            await instance.thaw()
            await instance.network_tell()  # what may have changed meanwhile

    async def sandbox_pause(self, sandbox_id: str, *, memory: bool) -> None:
        await self._introductions.wait(sandbox_id)
        instance, image_id = await self._snapshots.pause(sandbox_id, memory=memory)
        self._tasks.start_soon(safely, self._tidy_after, instance, image_id)

    async def _tidy_after(self, instance: Instance, image_id: str) -> None:
        """After a pause: its disk moves, the box goes; and one that wakes soon finds its image in the host's cache."""
        try:
            await self._snapshots.disk_keep(image_id, instance)
            with contextlib.suppress(OSError):  # it may be woken or killed meanwhile
                await asyncio.to_thread(self._host.images.warm, image_id)
        finally:
            await self._demolish(instance)
        await self._snapshots.settle(image_id)

    async def sandbox_resume(self, order: SandboxOrder) -> SandboxStarted:
        self._check_volumes(order.volumes)
        steps = Steps()
        make = self._snapshots.create if order.image else self._snapshots.resume
        try:
            with self._admitted(order):
                instance = await make(order, steps)
        except Internal as error:
            raise volumes.wake_failure(order.volumes, error) from error
        slept_in = self._snapshots.woken(order.sandbox_id)
        self._take_in(instance)
        if slept_in is not None:
            self._tasks.start_soon(safely, self._remove_after, slept_in)
        return SandboxStarted(order.sandbox_id, steps.ms, "image")

    async def _remove_after(self, image_id: str) -> None:
        """An image that nobody needs any more; the answer to whoever was woken from it goes first."""
        try:
            await asyncio.sleep(limits.TIDY_AFTER_S)
        finally:
            with anyio.CancelScope(shield=True):
                await self._snapshots.remove(image_id)

    async def sandbox_rollback(self, order: SandboxOrder) -> SandboxStarted:
        await self._introductions.wait(order.sandbox_id)
        before = self._instance(order.sandbox_id)
        steps = Steps()
        try:
            with self._admitted(order):
                instance = await self._snapshots.create(order, steps, replaces=before.entry.box_id)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await before.gate_open()  # the one that came to nothing may have taken it already
            raise
        await self._succeed(before, instance)
        return SandboxStarted(order.sandbox_id, steps.ms, "image")

    async def _succeed(self, before: Instance, instance: Instance) -> None:
        """One box of a sandbox takes the place of another, unless the sandbox has ended meanwhile."""
        with anyio.CancelScope(shield=True):
            if self._instances.get(before.entry.sandbox_id) is not before:
                await instance.demolish()
                raise Conflict("the sandbox ended while another box was made for it", code="not_running")
            self._take_in(instance)
            await before.end()
            await self._demolish(before)
            instance.takes_over()

    def paused_ids(self) -> frozenset[str]:
        return frozenset(self._snapshots.paused)

    def paused_with_memory(self, sandbox_id: str) -> bool | None:
        return self._snapshots.paused_with_memory(sandbox_id)

    async def idle_s(self, sandbox_id: str, enough_s: float) -> float:
        instance = self._instance(sandbox_id)
        idle_s = instance.activity.idle_s()
        if idle_s < enough_s or instance.frozen:
            return idle_s
        with contextlib.suppress(AtollError):  # it does not answer, or is of a version that does not know
            said = await instance.guest.call("quiet", {}, timeout_s=limits.QUIET_S_MAX)
            instance.activity.printed(said.get("output_age_s"))
        return instance.activity.idle_s()

    async def image_take(self, sandbox_id: str, image_id: str, *, memory: bool, passing: bool = False) -> ImageTaken:
        await self._introductions.wait(sandbox_id)
        return await self._snapshots.take(sandbox_id, image_id, memory=memory, passing=passing)

    def image_export(
        self, image_id: str, template: str, resources: Resources, *, memory: bool
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._transfers.export(image_id, template, resources, memory=memory)

    async def image_import(self, image_id: str, chunks: AsyncIterator[bytes], *, memory: bool) -> ImageArrived:
        return await self._transfers.arrive(image_id, chunks, memory=memory)

    async def image_diff(self, before: str, after: str) -> DiskChanges:
        await self._introductions.wait(after)
        return await self._snapshots.diff(before, after)

    async def image_space(self, image_id: str) -> Space:
        return await self._snapshots.space(image_id)

    async def image_file_restore(self, image_id: str, sandbox_id: str, path: str) -> int:
        await self._introductions.wait(sandbox_id)
        return await self._snapshots.file_restore(image_id, sandbox_id, path)

    async def image_remove(self, image_id: str) -> None:
        """One that somebody uses goes as soon as nobody does: a slow user holds up neither its caller nor expiry.

        It is off the record by now, so if the server ends before that the next start removes it.
        """
        if self._snapshots.in_use(image_id):
            self._tasks.start_soon(safely, self._snapshots.remove, image_id)
        else:
            await self._snapshots.remove(image_id)

    def image_ids(self) -> frozenset[str]:
        return self._snapshots.known()
