"""A node without a machine: the same port, sandboxes in memory, and faults on demand.

For tests of control, of the HTTP edge and of the SDK. Its guests have files (a dictionary) and processes that
understand a line of `echo`, `cat`, `sleep`, `yes`, `true`, `false` and `exit`, separated by semicolons.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from socket import socket
from typing import Any

import anyio
from anyio.abc import TaskGroup

from atoll.model.errors import AtollError, Conflict, GuestFailed, InvalidArgument, NotFound
from atoll.model.lifecycle import EndReason
from atoll.model.resources import Resources
from atoll.model.template import Template
from atoll.model.usage import Sample
from atoll.testing.fakeguest import FakeGuest, FakeStream
from atoll.testing.fakenetwork import FakeNetwork
from atoll.testing.fakevolumes import FakeVolumes
from atoll.wire.node import (
    DiskChange,
    DiskChanges,
    GuestStream,
    ImageArrived,
    ImageTaken,
    NodeStatus,
    SandboxDied,
    SandboxOrder,
    SandboxStarted,
    SeriesPoint,
    Space,
)

TEMPLATES = (Template(name="base", key="0" * 16), Template(name="code", key="1" * 16))


class FakeNode(FakeNetwork, FakeVolumes):
    """A machine that can be told to fail. It keeps its sandboxes across servers, as a real one does."""

    def __init__(self) -> None:
        super().__init__()
        self.guests: dict[str, FakeGuest] = {}
        self.orders: list[SandboxOrder] = []
        self.destroyed: list[str] = []
        self.create_s = 0.0
        self.rebooted = False
        self.failed_ways: tuple[str, ...] = ()
        self.create_errors: list[AtollError] = []
        self.destroy_errors: list[Exception] = []
        self.create_gate: anyio.Event | None = None
        """If set, a create waits for this event when all is made but not yet reported."""
        self.creating: set[str] = set()
        self.paused: dict[str, FakeGuest] = {}
        self.paused_memory: dict[str, bool] = {}
        self.frozen: set[str] = set()
        self.images: set[str] = set()
        self.idle_seconds: dict[str, float] = {}
        self.idle_waits: dict[str, anyio.Event] = {}
        """Those whose inside is slow to say how long it was idle."""
        self.pause_s = self.resume_s = 0.0
        self.pause_errors: list[AtollError] = []
        self.resume_errors: list[AtollError] = []
        self.image_errors: list[AtollError] = []
        self.image_bytes = 10
        """What the disk of each image holds."""
        self.passing: set[str] = set()
        """The images that were taken to be thrown away soon."""
        self.resumed: list[SandboxOrder] = []
        self.ports: dict[int, Callable[[], Awaitable[socket]]] = {}
        """What listens in every sandbox: how to connect to it, by port."""
        self.samples: dict[str, Sample] = {}
        """What sandboxes use, as far as a test has said so."""
        self.unreadable: set[str] = set()
        """Those of which it cannot be told what they use."""
        self.sample_errors: list[Exception] = []
        self.sampled = 0
        """How often somebody asked what is used."""
        self._deaths: list[SandboxDied] = []
        self._died = anyio.Event()
        self._tasks: TaskGroup | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[FakeNode]:
        """A node whose processes run as long as this lasts."""
        node = cls()
        async with node.running():
            yield node

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FakeNode]:
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield self
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()

    def _running_tasks(self) -> TaskGroup:
        assert self._tasks is not None, "processes run only while the node does"
        return self._tasks

    async def templates(self) -> Sequence[Template]:
        return TEMPLATES

    async def sandbox_create(self, order: SandboxOrder) -> SandboxStarted:
        if order.sandbox_id in self.guests or order.sandbox_id in self.creating:
            raise Conflict("this sandbox exists already", code="sandbox_exists")
        self._check_volumes(order.volumes)
        self.orders.append(order)
        self.creating.add(order.sandbox_id)
        try:
            await anyio.sleep(self.create_s)
            if self.create_errors:
                error = self.create_errors.pop(0)
                error.failed_ways = self.failed_ways
                raise error
            if self.create_gate is not None:
                await self.create_gate.wait()
            self.guests[order.sandbox_id] = FakeGuest(order, self._running_tasks)
        finally:
            self.creating.discard(order.sandbox_id)
        return SandboxStarted(order.sandbox_id, {"make": self.create_s * 1000}, failed=self.failed_ways)

    async def sandbox_destroy(self, sandbox_id: str) -> None:
        assert sandbox_id not in self.creating, "a sandbox that is being made must not be destroyed at the same time"
        if self.destroy_errors:
            raise self.destroy_errors.pop(0)
        self.destroyed.append(sandbox_id)
        self.paused.pop(sandbox_id, None)
        guest = self.guests.pop(sandbox_id, None)
        if guest is not None:
            guest.end()

    async def sample(self, sandbox_ids: Sequence[str]) -> Mapping[str, Sample]:
        self.sampled += 1
        if self.sample_errors:
            raise self.sample_errors.pop(0)
        told = [one for one in sandbox_ids if one in self.guests and one not in self.unreadable]
        return {one: self.samples.get(one, Sample()) for one in told}

    def sandbox_ids(self) -> frozenset[str]:
        return frozenset(self.guests)

    def restarted(self) -> bool:
        return self.rebooted

    def die(self, sandbox_id: str, reason: EndReason = EndReason.RUNTIME_DIED, detail: str = "") -> None:
        """End a sandbox as if by itself."""
        self.guests.pop(sandbox_id).end()
        self._deaths.append(SandboxDied(sandbox_id, reason, detail))
        self._died.set()

    async def wait_death(self) -> SandboxDied:
        while not self._deaths:
            self._died = anyio.Event()
            await self._died.wait()
        return self._deaths.pop(0)

    async def guest_call(self, sandbox_id: str, op: str, params: Mapping[str, Any]) -> dict[str, Any]:
        return self._guest(sandbox_id).call(op, dict(params))

    @asynccontextmanager
    async def guest_stream(self, sandbox_id: str, op: str, params: Mapping[str, Any]) -> AsyncIterator[GuestStream]:
        stream = FakeStream(self._guest(sandbox_id), op, dict(params))
        try:
            yield stream
        finally:
            stream.close()

    async def sandbox_standby(self, sandbox_id: str) -> None:
        self._guest(sandbox_id)
        self.frozen.add(sandbox_id)

    async def sandbox_wake(self, sandbox_id: str) -> None:
        self._guest(sandbox_id)
        self.frozen.discard(sandbox_id)

    async def sandbox_pause(self, sandbox_id: str, *, memory: bool) -> None:
        self._guest(sandbox_id)
        await anyio.sleep(self.pause_s)
        if self.pause_errors:
            raise self.pause_errors.pop(0)
        self.frozen.discard(sandbox_id)
        self.paused[sandbox_id] = self.guests.pop(sandbox_id)
        self.paused_memory[sandbox_id] = memory

    async def sandbox_resume(self, order: SandboxOrder) -> SandboxStarted:
        if order.sandbox_id not in self.paused:
            raise NotFound("there is no such paused sandbox here", code="sandbox_not_found")
        await anyio.sleep(self.resume_s)
        if self.resume_errors:
            raise self.resume_errors.pop(0)
        self.resumed.append(order)
        self.guests[order.sandbox_id] = self.paused.pop(order.sandbox_id)
        return SandboxStarted(order.sandbox_id, {}, "image")

    async def sandbox_rollback(self, order: SandboxOrder) -> SandboxStarted:
        self._guest(order.sandbox_id)
        if order.image not in self.images:
            raise NotFound("there is no such image", code="image_not_found")
        self.resumed.append(order)
        return SandboxStarted(order.sandbox_id, {}, "image")

    def paused_ids(self) -> frozenset[str]:
        return frozenset(self.paused)

    def paused_with_memory(self, sandbox_id: str) -> bool | None:
        return self.paused_memory.get(sandbox_id) if sandbox_id in self.paused else None

    async def idle_s(self, sandbox_id: str, enough_s: float) -> float:
        self._guest(sandbox_id)
        idle_s = self.idle_seconds.get(sandbox_id, 0.0)
        if idle_s >= enough_s and sandbox_id in self.idle_waits:
            await self.idle_waits[sandbox_id].wait()
        return idle_s

    async def image_take(self, sandbox_id: str, image_id: str, *, memory: bool, passing: bool = False) -> ImageTaken:
        if sandbox_id not in self.paused:
            self._guest(sandbox_id)
        if self.image_errors:
            raise self.image_errors.pop(0)
        self.images.add(image_id)
        if passing:
            self.passing.add(image_id)
        return ImageTaken(memory, 1000 if memory else 0, self.image_bytes)

    @asynccontextmanager
    async def image_export(
        self, image_id: str, template: str, resources: Resources, *, memory: bool
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        assert image_id in self.images
        yield _pieces(f"fake snapshot\n{template} {int(memory)} {resources.memory_bytes}\n".encode())

    async def image_import(self, image_id: str, chunks: AsyncIterator[bytes], *, memory: bool) -> ImageArrived:
        words = b"".join([chunk async for chunk in chunks]).decode("utf-8", "replace").split()
        if words[:2] != ["fake", "snapshot"]:
            raise InvalidArgument("this is no snapshot of Atoll", code="snapshot_foreign")
        self.images.add(image_id)
        kept = memory and words[3] == "1"
        return ImageArrived(words[2], Resources(memory_bytes=int(words[4])), kept, 1000 if kept else 0, 10)

    async def image_remove(self, image_id: str) -> None:
        self.images.discard(image_id)

    async def image_diff(self, before: str, after: str) -> DiskChanges:
        assert before in self.images
        assert after in self.images or after in self.guests or after in self.paused
        return DiskChanges([DiskChange("/home/user/a", "added", "file", 1)])

    async def image_space(self, image_id: str) -> Space:
        assert image_id in self.images
        return Space(1000, 10)

    async def image_file_restore(self, image_id: str, sandbox_id: str, path: str) -> int:
        assert image_id in self.images
        return len(self._guest(sandbox_id).order.sandbox_id + path)

    def image_ids(self) -> frozenset[str]:
        return frozenset(self.images)

    async def dial(self, sandbox_id: str, port: int) -> socket:
        self._guest(sandbox_id)
        if port not in self.ports:
            raise GuestFailed(f"nothing listens on port {port} of the sandbox", code="port_closed")
        return await self.ports[port]()

    def sandbox_series(self, sandbox_id: str) -> Sequence[SeriesPoint]:
        return [SeriesPoint(1e9, 1.5, 2**20, 2**20, 3, 4)] if sandbox_id in self.guests else []

    def status(self) -> NodeStatus:
        gib = 1024**3
        promised = sum(guest.order.resources.memory_bytes for guest in self.guests.values())
        return NodeStatus(len(self.guests), 16 * gib, 8 * gib, promised, 100 * gib, 50 * gib)

    def _guest(self, sandbox_id: str) -> FakeGuest:
        try:
            return self.guests[sandbox_id]
        except KeyError:
            raise NotFound("there is no such sandbox here", code="sandbox_not_found") from None


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 7):
        yield data[start : start + 7]
