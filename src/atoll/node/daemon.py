"""The node: owns the sandboxes of this machine, finds them again after a restart, and removes what nobody owns.

It implements `wire.node.NodePort`. Everything on the host that it makes is in the journal first; everything that the
journal does not know is swept away at start. Between the two there is no third kind.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import structlog
from anyio.abc import TaskGroup

from atoll.model import limits
from atoll.model.errors import AtollError, Conflict, NotFound
from atoll.model.template import Template
from atoll.node import admission, inventory, templates
from atoll.node.host import Host
from atoll.node.hostopen import host_open
from atoll.node.install.layout import Layout
from atoll.node.instance import Instance, Steps, demolish
from atoll.node.journal import Entry
from atoll.node.network import netns
from atoll.node.network.plan import Pair
from atoll.wire.node import GuestStream, NodeStatus, SandboxDied, SandboxOrder, SandboxStarted

log = structlog.get_logger("atoll.node")


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What an operator chooses about a node."""

    layout: Layout
    pool_size_bytes: int = 0
    runtime: str = "runsc"
    strict: bool = False
    memory_overcommit: float = 4.0


class Node:
    """One machine's sandboxes."""

    def __init__(self, host: Host, overcommit: float) -> None:
        self._host = host
        self._overcommit = overcommit
        self._instances: dict[str, Instance] = {}
        self._making: dict[str, Entry] = {}
        self._deaths: asyncio.Queue[SandboxDied] = asyncio.Queue()
        self._spares: deque[Pair] = deque()
        self._spares_wanted = asyncio.Event()
        self._tasks: TaskGroup  # set by `open`, for as long as it lasts

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: NodeSettings) -> AsyncIterator[Node]:
        """A node that has recovered what was there before. On exit it lets go; its sandboxes go on."""
        host = await host_open(
            settings.layout, pool_size_bytes=settings.pool_size_bytes, runtime=settings.runtime, strict=settings.strict
        )
        node = cls(host, settings.memory_overcommit)
        async with anyio.create_task_group() as tasks:
            node._tasks = tasks
            await node._recover()
            tasks.start_soon(node._keep_spares)
            try:
                yield node
            finally:
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await node._tidy()

    async def templates(self) -> Sequence[Template]:
        return templates.known(self._host.pool)

    async def sandbox_create(self, order: SandboxOrder) -> SandboxStarted:
        if order.sandbox_id in self._instances or order.sandbox_id in self._making:
            raise Conflict("this sandbox exists already", code="sandbox_exists")
        template = templates.find(self._host.pool, order.template)
        steps = Steps()
        entry = self._admit(order)
        try:
            await self._take_network(entry)
            steps.done("network")
            instance = await Instance.create(self._host, entry, template, steps, env=order.env)
        finally:
            del self._making[order.sandbox_id]
        self._instances[order.sandbox_id] = instance
        self._tasks.start_soon(self._watch, instance)
        return SandboxStarted(order.sandbox_id, steps.ms)

    async def sandbox_destroy(self, sandbox_id: str) -> None:
        instance = self._instances.pop(sandbox_id, None)
        if instance is not None:
            instance.ending = True
            with anyio.CancelScope(shield=True):
                await instance.demolish()

    def sandbox_ids(self) -> frozenset[str]:
        return frozenset(self._instances)

    async def wait_death(self) -> SandboxDied:
        return await self._deaths.get()

    async def guest_call(self, sandbox_id: str, op: str, params: Mapping[str, Any]) -> dict[str, Any]:
        return await self._instance(sandbox_id).guest.call(op, dict(params))

    def guest_stream(
        self, sandbox_id: str, op: str, params: Mapping[str, Any]
    ) -> AbstractAsyncContextManager[GuestStream]:
        return self._instance(sandbox_id).guest.stream(op, dict(params))

    def status(self) -> NodeStatus:
        memory = admission.host_memory()
        return NodeStatus(
            sandboxes=len(self._instances),
            memory_total_bytes=memory.total,
            memory_available_bytes=memory.available,
            memory_promised_bytes=self._promised_bytes(),
            disk_total_bytes=shutil.disk_usage(self._host.pool.root).total,
            disk_free_bytes=self._host.pool.free_bytes(),
        )

    def _instance(self, sandbox_id: str) -> Instance:
        try:
            return self._instances[sandbox_id]
        except KeyError:
            raise NotFound("there is no such sandbox here", code="sandbox_not_found") from None

    def _promised_bytes(self) -> int:
        entries = [instance.entry for instance in self._instances.values()] + list(self._making.values())
        return sum(entry.resources.memory_bytes + limits.RUNTIME_MEMORY_BYTES for entry in entries)

    def _admit(self, order: SandboxOrder) -> Entry:
        """Count the sandbox before anything is made, so that two creates at once cannot both take the last place."""
        refused = admission.refusal(
            order.resources,
            memory=admission.host_memory(),
            promised_bytes=self._promised_bytes(),
            sandboxes=len(self._instances) + len(self._making),
            overcommit=self._overcommit,
        )
        if refused is not None:
            raise refused
        slot = self._spares.popleft().slot if self._spares else _slot_new()
        self._spares_wanted.set()
        entry = self._host.entry(order.sandbox_id, order.template, order.resources, slot=slot, hostname=order.hostname)
        self._making[order.sandbox_id] = entry
        return entry

    async def _take_network(self, entry: Entry) -> None:
        pair = Pair.of(self._host.names, entry.slot)
        if not pair.exists():
            await _pair_make(pair)

    async def _watch(self, instance: Instance) -> None:
        """Wait for a death that nobody asked for, report it at once, and clean up after it."""
        reason, detail = await instance.wait_death()
        if instance.ending or self._instances.get(instance.entry.sandbox_id) is not instance:
            return
        del self._instances[instance.entry.sandbox_id]
        self._deaths.put_nowait(SandboxDied(instance.entry.sandbox_id, reason, detail))
        log.warning("sandbox died", sandbox_id=instance.entry.sandbox_id, reason=reason.value)
        try:
            with anyio.CancelScope(shield=True):
                await instance.demolish()
        except AtollError as error:
            # It stays in the journal, so the next start takes it up again.
            log.error("clean-up failed", sandbox_id=instance.entry.sandbox_id, error=repr(error), detail=error.detail)

    async def _recover(self) -> None:
        """Take back the sandboxes that live, remove those that do not, and everything that is in no record."""
        for entry in self._host.journal.read():
            instance = await Instance.adopt(self._host, entry)
            if instance is None:
                await demolish(self._host, entry)
                continue
            self._instances[entry.sandbox_id] = instance
            self._tasks.start_soon(self._watch, instance)
        entries = [instance.entry for instance in self._instances.values()]
        boxes, slots = {entry.box_id for entry in entries}, {entry.slot for entry in entries}
        removed = await inventory.sweep(self._host, boxes, slots)
        log.info("recovered", sandboxes=len(entries), removed=len(removed))

    async def _keep_spares(self) -> None:
        """Namespace pairs in advance; one at a time, so that a burst of creates is not slowed by its own supply."""
        while True:
            if len(self._spares) >= limits.NETWORKS_SPARE:
                self._spares_wanted.clear()
                await self._spares_wanted.wait()
            pair = Pair.of(self._host.names, _slot_new())
            try:
                await _pair_make(pair)
            except AtollError as error:
                log.error("no spare network", error=repr(error), detail=error.detail)
                await asyncio.sleep(1)
                continue
            self._spares.append(pair)

    async def _tidy(self) -> None:
        """A server that stops in good order leaves only its sandboxes behind."""
        while self._spares:
            await netns.pair_remove(self._spares.popleft())
        if not self._instances:
            await asyncio.to_thread(self._host.cgroups.remove, self._host.names.cgroup_parent)


async def _pair_make(pair: Pair) -> None:
    try:
        await netns.pair_create(pair)
    except BaseException:
        with anyio.CancelScope(shield=True), contextlib.suppress(AtollError):
            await netns.pair_remove(pair)
        raise


def _slot_new() -> str:
    return secrets.token_hex(4)
