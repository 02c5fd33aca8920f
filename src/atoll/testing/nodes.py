"""A node without a machine: the same port, sandboxes in memory, and faults on demand.

For tests of control, of the HTTP edge and of the SDK. Its guests have files (a dictionary) and processes that
understand a line of `echo`, `cat`, `sleep`, `yes`, `true`, `false` and `exit`, separated by semicolons.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup

from atoll.model.errors import AtollError, Conflict, NotFound
from atoll.model.lifecycle import EndReason
from atoll.model.template import Template
from atoll.testing.fakeguest import FakeGuest, FakeStream
from atoll.wire.node import GuestStream, NodeStatus, SandboxDied, SandboxOrder, SandboxStarted

TEMPLATES = (Template(name="base", key="0" * 16), Template(name="code", key="1" * 16))


class FakeNode:
    """A machine that can be told to fail. It keeps its sandboxes across servers, as a real one does."""

    def __init__(self) -> None:
        self.guests: dict[str, FakeGuest] = {}
        self.orders: list[SandboxOrder] = []
        self.destroyed: list[str] = []
        self.create_s = 0.0
        self.create_errors: list[AtollError] = []
        self.destroy_errors: list[Exception] = []
        self.create_gate: anyio.Event | None = None
        """If set, a create waits for this event when all is made but not yet reported."""
        self.creating: set[str] = set()
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
        self.orders.append(order)
        self.creating.add(order.sandbox_id)
        try:
            await anyio.sleep(self.create_s)
            if self.create_errors:
                raise self.create_errors.pop(0)
            if self.create_gate is not None:
                await self.create_gate.wait()
            self.guests[order.sandbox_id] = FakeGuest(order, self._running_tasks)
        finally:
            self.creating.discard(order.sandbox_id)
        return SandboxStarted(order.sandbox_id, {"make": self.create_s * 1000})

    async def sandbox_destroy(self, sandbox_id: str) -> None:
        assert sandbox_id not in self.creating, "a sandbox that is being made must not be destroyed at the same time"
        if self.destroy_errors:
            raise self.destroy_errors.pop(0)
        self.destroyed.append(sandbox_id)
        guest = self.guests.pop(sandbox_id, None)
        if guest is not None:
            guest.end()

    def sandbox_ids(self) -> frozenset[str]:
        return frozenset(self.guests)

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

    def status(self) -> NodeStatus:
        gib = 1024**3
        promised = sum(guest.order.resources.memory_bytes for guest in self.guests.values())
        return NodeStatus(len(self.guests), 16 * gib, 8 * gib, promised, 100 * gib, 50 * gib)

    def _guest(self, sandbox_id: str) -> FakeGuest:
        try:
            return self.guests[sandbox_id]
        except KeyError:
            raise NotFound("there is no such sandbox here", code="sandbox_not_found") from None
