"""The part of a node's port that is about state: standby, pause, resume, rollback, and images."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager

import anyio
from anyio.abc import TaskGroup

from atoll.model.errors import Conflict, Internal
from atoll.model.resources import Resources
from atoll.model.volume import VolumeMount
from atoll.node import standby, volumes
from atoll.node.host import Host
from atoll.node.instance import Instance
from atoll.node.snapshots import Snapshots
from atoll.node.steps import Steps
from atoll.node.transfers import Transfers
from atoll.wire.node import DiskChange, ImageArrived, ImageTaken, SandboxOrder, SandboxStarted


class StatePort(ABC):
    """A node's words about the state of sandboxes; the node itself adds the rest."""

    _host: Host
    _instances: dict[str, Instance]
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
        instance = self._instance(sandbox_id)
        await instance.activity.wait_answered()
        await instance.freeze()
        self._tasks.start_soon(standby.reclaim_later, self._host, instance)

    async def sandbox_wake(self, sandbox_id: str) -> None:
        instance = self._instance(sandbox_id)
        if instance.frozen:
            await instance.thaw()
            await instance.network_tell()  # what may have changed meanwhile

    async def sandbox_pause(self, sandbox_id: str, *, memory: bool) -> None:
        instance = await self._snapshots.pause(sandbox_id, memory=memory)
        self._tasks.start_soon(self._tidy_after, instance)

    async def _tidy_after(self, instance: Instance) -> None:
        """After a pause: the box goes; and one that wakes soon finds its image in the host's cache."""
        await self._demolish(instance)
        image_id = self._snapshots.paused.get(instance.entry.sandbox_id)
        if image_id is not None:
            with contextlib.suppress(OSError):  # it may be woken or killed meanwhile
                await asyncio.to_thread(self._host.images.warm, image_id)

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
            self._tasks.start_soon(self._snapshots.remove, slept_in)
        return SandboxStarted(order.sandbox_id, steps.ms, "image")

    async def sandbox_rollback(self, order: SandboxOrder) -> SandboxStarted:
        before = self._instance(order.sandbox_id)
        steps = Steps()
        with self._admitted(order):
            instance = await self._snapshots.create(order, steps, replaces=before.entry.box_id)
        with anyio.CancelScope(shield=True):
            if self._instances.get(order.sandbox_id) is not before:
                await instance.demolish()
                raise Conflict("the sandbox ended while it was being rolled back", code="not_running")
            self._take_in(instance)
            await before.end()
            await self._demolish(before)
            instance.takes_over()
        return SandboxStarted(order.sandbox_id, steps.ms, "image")

    def paused_ids(self) -> frozenset[str]:
        return frozenset(self._snapshots.paused)

    def idle_s(self, sandbox_id: str) -> float:
        return self._instance(sandbox_id).activity.idle_s()

    async def image_take(self, sandbox_id: str, image_id: str, *, memory: bool, passing: bool = False) -> ImageTaken:
        return await self._snapshots.take(sandbox_id, image_id, memory=memory, passing=passing)

    def image_export(
        self, image_id: str, template: str, resources: Resources, *, memory: bool
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._transfers.export(image_id, template, resources, memory=memory)

    async def image_import(self, image_id: str, chunks: AsyncIterator[bytes], *, memory: bool) -> ImageArrived:
        return await self._transfers.arrive(image_id, chunks, memory=memory)

    async def image_diff(self, before: str, after: str, items_max: int) -> Sequence[DiskChange]:
        return await self._snapshots.diff(before, after, items_max)

    async def image_file_restore(self, image_id: str, sandbox_id: str, path: str) -> int:
        return await self._snapshots.file_restore(image_id, sandbox_id, path)

    async def image_remove(self, image_id: str) -> None:
        await self._snapshots.remove(image_id)

    def image_ids(self) -> frozenset[str]:
        return self._snapshots.known()
