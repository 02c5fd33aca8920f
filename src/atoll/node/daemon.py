"""The node: owns the sandboxes of this machine, finds them again after a restart, and removes what nobody owns.

It implements `wire.node.NodePort`. Everything on the host that it makes is in the journal first; everything that the
journal does not know is swept away at start. Between the two there is no third kind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import anyio
import structlog
from anyio.abc import TaskGroup

from atoll.model import limits
from atoll.model.errors import AtollError, Conflict, NotFound
from atoll.model.lifecycle import EndReason
from atoll.model.resources import Resources
from atoll.model.template import Template
from atoll.model.usage import Sample
from atoll.node import admission, hostboot, inventory, startlog, templates
from atoll.node.background import detail_of, forever, safely
from atoll.node.egress.egress import EgressSettings
from atoll.node.egress.masking import masked_stream, unskipped
from atoll.node.ending import demolish
from atoll.node.host import Host
from atoll.node.hostopen import host_open
from atoll.node.images import Image
from atoll.node.incoming import Incomings
from atoll.node.install.layout import Layout
from atoll.node.instance import Instance
from atoll.node.introductions import Introductions
from atoll.node.journal import Entry
from atoll.node.metering import Sampler
from atoll.node.networkport import NetworkPort
from atoll.node.series import Series
from atoll.node.snapshotfile.signing import Signing
from atoll.node.snapshots import Snapshots
from atoll.node.spares import Spares
from atoll.node.stateport import StatePort
from atoll.node.steps import Steps
from atoll.node.transfers import Transfers
from atoll.node.volumeport import VolumePort, VolumeRoom
from atoll.node.warm import WarmPool
from atoll.wire.node import (
    GuestStream,
    NodeStatus,
    SandboxDied,
    SandboxOrder,
    SandboxStarted,
    SeriesPoint,
)

log = structlog.get_logger("atoll.node")


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What an operator chooses about a node."""

    layout: Layout
    pool_size_bytes: int = 0
    runtime: str = "runsc"
    strict: bool = False
    memory_overcommit: float = 4.0
    warm_size: int = 0
    """How many sandboxes of each template may wait for an owner; 0 is none."""
    egress: EgressSettings = field(default_factory=EgressSettings)
    snapshot_trust: frozenset[bytes] = frozenset()
    """Keys of other servers whose snapshots may bring their memory."""


class Node(NetworkPort, VolumePort, StatePort):
    """One machine's sandboxes."""

    def __init__(self, host: Host, overcommit: float, warm_size: int, signing: Signing) -> None:
        self._host = host
        self._overcommit = overcommit
        self._spares = Spares(host.names)
        self._incomings = Incomings()
        self._warm = WarmPool(host, self._spares, warm_size)
        self._instances: dict[str, Instance] = {}
        self._making: dict[str, Resources] = {}
        self._snapshots = Snapshots(host, self._spares, self._instances, self._warm)
        self._transfers = Transfers(host, self._snapshots, signing)
        self._series = Series(host, self._instances)
        self._sampler = Sampler(host)
        self._deaths: asyncio.Queue[SandboxDied] = asyncio.Queue()
        self._volume_room = VolumeRoom()
        self._claiming = anyio.CapacityLimiter(max(2, os.cpu_count() or 1))
        self._introductions = Introductions(limits.INTRODUCE_S_MAX)
        self._claims_failed = 0
        self._restarted = False
        self._tasks: TaskGroup  # set by `open`, for as long as it lasts

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: NodeSettings) -> AsyncIterator[Node]:
        """A node that has recovered what was there before. On exit it lets go; its sandboxes go on."""
        host = await host_open(
            settings.layout,
            pool_size_bytes=settings.pool_size_bytes,
            runtime=settings.runtime,
            strict=settings.strict,
            egress=settings.egress,
        )
        signing = await asyncio.to_thread(Signing.open, settings.layout.data, settings.snapshot_trust)
        node = cls(host, settings.memory_overcommit, settings.warm_size, signing)
        try:
            async with anyio.create_task_group() as tasks:
                node._tasks = tasks
                host.egress.start(tasks)
                await node._recover()
                tasks.start_soon(forever, host.memory_watch.run)
                tasks.start_soon(forever, host.rewarming.run, node._warm.quiet_s)
                tasks.start_soon(forever, node._spares.run)
                tasks.start_soon(forever, node._warm.run)
                tasks.start_soon(forever, node._series.run)
                try:
                    yield node
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            # Only now: a task that was making something has taken it down by the time its group has ended.
            with anyio.CancelScope(shield=True):
                await node._tidy()

    async def templates(self) -> Sequence[Template]:
        return templates.known(self._host.pool)

    async def sandbox_create(self, order: SandboxOrder) -> SandboxStarted:
        if order.sandbox_id in self._instances or order.sandbox_id in self._making:
            raise Conflict("this sandbox exists already", code="sandbox_exists")
        if not order.image:
            templates.find(self._host.pool, order.template)
        steps = Steps()
        try:
            with self._admitted(order, waits=self._waits(order)):
                way, instance = await self._make(order, steps)
        except AtollError as error:
            error.log = startlog.compose(steps.ms, error)
            error.failed_ways = tuple(steps.failed)
            raise
        self._take_in(instance)
        if instance.entry.untold:
            self._introduce_later(instance)
        return SandboxStarted(order.sandbox_id, steps.ms, way, tuple(steps.failed))

    def _take_in(self, instance: Instance) -> None:
        self._instances[instance.entry.sandbox_id] = instance
        self._tasks.start_soon(safely, self._watch, instance)
        if instance.moved_in:
            self._tasks.start_soon(safely, instance.old_disk_remove)

    async def _make(self, order: SandboxOrder, steps: Steps) -> tuple[str, Instance]:
        """The fastest way that is open: claim a live one, fill a shell, restore the warm image, or boot.

        A way that fails must not fail the create while there is another; what was broken is thrown away.
        """
        self._check_volumes(order.volumes)
        if order.image:
            return "image", await self._snapshots.create(order, steps)
        if order.volumes:
            return await self._make_new(order, steps)  # what waits for an owner has nothing behind its slots
        with self._tried("pool", order, steps):
            if (live := await self._claim(order, steps)) is not None:
                return "pool", live
        with self._warm.busy():
            if (live := await self._warm.claim_coming(order.template, order.resources)) is not None:
                steps.done("boundary_start")
                with self._tried("shell", order, steps):
                    await self._hand_over(live, order, steps)
                    return "shell", live
            if (shell := self._warm.claim_shell(order.template, order.resources)) is not None:
                instance, image = shell
                with self._tried("shell", order, steps):
                    await self._fill(instance, image, order, steps)
                    return "shell", instance
            return await self._make_new(order, steps)

    async def _claim(self, order: SandboxOrder, steps: Steps) -> Instance | None:
        """A live one for its owner, if one waits. One that does not answer soon is given up: the next way is slower,
        but not as slow as waiting.

        In a crowd it is the owner's by the record, and its guest hears of it when the others have been answered.
        """
        live = self._warm.claim(order.template, order.resources)
        if live is not None and order.crowded:
            async with live.kept_or_demolished():
                await live.limit(order.resources)
                live.promise(_owned(live.entry, order), order.env, untold=live.guest.token)
                steps.done("promise")
        elif live is not None:
            await self._hand_over(live, order, steps, timeout_s=limits.CLAIM_S_MAX)
        return live

    def _introduce_later(self, instance: Instance) -> None:
        self._introductions.begin(instance.entry.sandbox_id)
        self._tasks.start_soon(safely, self._introduce, instance)

    async def _introduce(self, instance: Instance) -> None:
        """Tell one that was claimed in a crowd who it is; some at a time, because guests that wake together hinder each
        other. One that does not answer is replaced: nobody has seen its inside.
        """
        sandbox_id = instance.entry.sandbox_id
        async with self._introductions.turn(sandbox_id):
            try:
                async with self._claiming:
                    if not instance.ending:
                        await instance.introduce(limits.CLAIM_S_MAX)
            except Exception as error:  # whatever it is: nobody may get one that has not been told
                if instance.ending or not instance.alive:
                    return  # whoever ends it, or watches it, tells why
                self._claims_failed += 1
                told = {"error": repr(error), "detail": detail_of(error)}
                log.warning("a claim failed", way="pool", sandbox_id=sandbox_id, **told)
                await self._replace(instance, _order_of(instance.entry))

    @contextlib.contextmanager
    def _tried(self, way: str, order: SandboxOrder, steps: Steps) -> Iterator[None]:
        """A way behind which there is another: that it failed is noted, and no more."""
        try:
            yield
        except AtollError as error:
            log.warning("a claim failed", way=way, sandbox_id=order.sandbox_id, error=repr(error), detail=error.detail)
            steps.failed.append(way)

    async def _replace(self, instance: Instance, order: SandboxOrder) -> None:
        """Another box for a sandbox whose own is of no use; if there is none, it has died."""
        try:
            _, fresh = await self._make_new(order, Steps(), replaces=instance.entry.box_id)
            await self._succeed(instance, fresh)
        except Exception as error:  # whatever it is, its owner hears that it has died
            log.error("a sandbox cannot be replaced", sandbox_id=order.sandbox_id, error=repr(error))
            await self._died(instance, EndReason.GUEST_UNRESPONSIVE, "it did not take in whose it is")

    async def _make_new(self, order: SandboxOrder, steps: Steps, *, replaces: str = "") -> tuple[str, Instance]:
        image = self._warm.image(order.template)
        slot = self._spares.slot()
        await self._spares.ensure(slot)
        steps.done("network")
        boot = image.boot if image else None
        entry = self._host.entry(
            order.sandbox_id, order.template, order.resources, slot=slot, hostname=order.hostname, boot=boot
        )
        entry = replace(entry, volumes=order.volumes, replaces=replaces)
        disk = self._host.images.disk_path(image.id) if image else templates.find(self._host.pool, order.template)
        instance = await Instance.create(self._host, entry, disk, steps, env=order.env, image=image)
        return ("image" if image else "boot"), instance

    async def _hand_over(
        self,
        instance: Instance,
        order: SandboxOrder,
        steps: Steps,
        timeout_s: float = limits.GUEST_REPLY_S_MAX,
    ) -> None:
        """Make a box that waited somebody's: limits first, then the identity. On an error it is gone."""
        async with instance.kept_or_demolished():
            await instance.limit(order.resources)
            steps.done("limits")
            await instance.become(_owned(instance.entry, order), order.env, timeout_s=timeout_s)
            steps.done("identity")

    async def _fill(self, instance: Instance, image: Image, order: SandboxOrder, steps: Steps) -> None:
        async with instance.kept_or_demolished():
            await instance.boot(steps, image)
        await self._hand_over(instance, order, steps)

    async def sandbox_destroy(self, sandbox_id: str) -> None:
        instance = self._instances.pop(sandbox_id, None)
        self._introductions.hurry(sandbox_id)
        if instance is not None:
            with anyio.CancelScope(shield=True):
                await instance.strike()
            # Nothing of it runs any more; the rest is tidying, and the journal remembers it.
            self._tasks.start_soon(safely, self._tidy_up, instance)
        self._host.egress.forget(sandbox_id)
        slept_in = self._snapshots.woken(sandbox_id)
        if slept_in is not None:
            await self._snapshots.remove(slept_in)

    async def sample(self, sandbox_ids: Sequence[str]) -> Mapping[str, Sample]:
        instances = [self._instances[one] for one in sandbox_ids if one in self._instances]
        return await self._sampler.samples([instance.entry for instance in instances])

    def sandbox_ids(self) -> frozenset[str]:
        return frozenset(self._instances)

    def restarted(self) -> bool:
        return self._restarted

    async def wait_death(self) -> SandboxDied:
        return await self._deaths.get()

    async def guest_call(self, sandbox_id: str, op: str, params: Mapping[str, Any]) -> dict[str, Any]:
        await self._introductions.wait(sandbox_id)
        instance = self._awake(sandbox_id)
        with instance.activity.calling():
            return await instance.guest.call(op, dict(params))

    @asynccontextmanager
    async def guest_stream(self, sandbox_id: str, op: str, params: Mapping[str, Any]) -> AsyncIterator[GuestStream]:
        await self._introductions.wait(sandbox_id)
        instance = self._awake(sandbox_id)
        with instance.activity.going_on():
            values = partial(self.secret_values, sandbox_id)
            asked, skip = unskipped(op, params, values())
            async with instance.operation(op, dict(asked), self._incomings) as stream:
                yield masked_stream(stream, op, values, skip)

    async def dial(self, sandbox_id: str, port: int) -> socket.socket:
        await self._introductions.wait(sandbox_id)
        return await self._instance(sandbox_id).ports.dial(port)

    def sandbox_series(self, sandbox_id: str) -> Sequence[SeriesPoint]:
        return self._series.of(sandbox_id)

    def status(self) -> NodeStatus:
        memory = admission.host_memory()
        return NodeStatus(
            sandboxes=len(self._instances),
            memory_total_bytes=memory.total,
            memory_available_bytes=memory.available,
            memory_promised_bytes=self._promised_bytes(),
            disk_total_bytes=shutil.disk_usage(self._host.pool.root).total,
            disk_free_bytes=self._host.pool.free_bytes(),
            warm=self._warm.counts(),
            claims_failed=self._claims_failed,
            warm_max=self._warm.ceiling,
        )

    def _instance(self, sandbox_id: str) -> Instance:
        try:
            return self._instances[sandbox_id]
        except KeyError:
            raise NotFound("there is no such sandbox here", code="sandbox_not_found") from None

    def _awake(self, sandbox_id: str) -> Instance:
        instance = self._instance(sandbox_id)
        if instance.frozen:
            raise Conflict("the sandbox is in standby", code="asleep")
        return instance

    def _promised_bytes(self) -> int:
        wishes = [instance.entry.resources for instance in self._instances.values()] + list(self._making.values())
        return sum(admission.promise_bytes(resources) for resources in wishes)

    def _waits(self, order: SandboxOrder) -> bool:
        """Whether the pool has this one, and its memory with it."""
        return not order.image and not order.volumes and self._warm.has_live(order.template, order.resources)

    @contextlib.contextmanager
    def _admitted(self, order: SandboxOrder, *, waits: bool = False) -> Iterator[None]:
        """Count the sandbox before anything is made, so that two creates at once cannot both take the last place."""
        refused = admission.refusal(
            order.resources,
            memory=admission.host_memory(),
            promised_bytes=self._promised_bytes(),
            sandboxes=len(self._instances) + len(self._making),
            overcommit=self._overcommit,
            waits=waits,
        )
        if refused is not None:
            raise refused
        self._making[order.sandbox_id] = order.resources
        try:
            yield
        finally:
            del self._making[order.sandbox_id]

    async def _watch(self, instance: Instance) -> None:
        """Wait for a death that nobody asked for, report it at once, and clean up after it."""
        try:
            reason, detail = await instance.wait_death()
        except Exception as error:  # whatever the end of one sandbox brings with it, the server goes on for the others
            log.error("a death could not be looked into", sandbox_id=instance.entry.sandbox_id, error=repr(error))
            reason, detail = EndReason.RUNTIME_DIED, "its runtime ended unexpectedly"
        await self._died(instance, reason, detail)

    async def _died(self, instance: Instance, reason: EndReason, detail: str) -> None:
        if instance.ending or self._instances.get(instance.entry.sandbox_id) is not instance:
            return
        del self._instances[instance.entry.sandbox_id]
        self._deaths.put_nowait(SandboxDied(instance.entry.sandbox_id, reason, detail))
        log.warning("sandbox died", sandbox_id=instance.entry.sandbox_id, reason=reason.value)
        await self._demolish(instance)

    async def _tidy_up(self, instance: Instance) -> None:
        """Take down what is left of one that was killed, a moment later: the answer to whoever killed it goes first."""
        try:
            await asyncio.sleep(limits.TIDY_AFTER_S)
        finally:
            await self._demolish(instance)

    async def _demolish(self, instance: Instance) -> None:
        try:
            with anyio.CancelScope(shield=True):
                await instance.demolish()
        except Exception as error:
            # It stays in the journal, so the next start takes it up again.
            told = {"error": repr(error), "detail": detail_of(error)}
            log.error("clean-up failed", sandbox_id=instance.entry.sandbox_id, **told)

    async def _recover(self) -> None:
        """Take back the sandboxes that live, remove those that do not, and everything that is in no record."""
        await asyncio.to_thread(self._snapshots.recover)
        self._restarted = hostboot.changed(self._host.names.data / "boot")
        for entry in self._host.journal.read():
            instance = await Instance.adopt(self._host, entry) if self._may_live(entry) else None
            if instance is None:
                await demolish(self._host, entry)
                continue
            self._instances[entry.sandbox_id] = instance
            self._tasks.start_soon(safely, self._watch, instance)
            if entry.untold:
                await self._introduce_again(instance)
        entries = [instance.entry for instance in self._instances.values()]
        boxes, slots = {entry.box_id for entry in entries}, {entry.slot for entry in entries}
        removed = await inventory.sweep(self._host, boxes, slots)
        await asyncio.to_thread(self._host.images.sweep)
        self._host.egress.sweep(frozenset(self._instances) | frozenset(self._snapshots.paused))
        log.info("recovered", sandboxes=len(entries), removed=len(removed))

    async def _introduce_again(self, instance: Instance) -> None:
        """One whose server was killed about when it was to be told whose it is: if it was, its new token opens it."""
        try:
            await instance.guest.call("ping", timeout_s=limits.CLAIM_S_MAX)
        except AtollError:
            instance.guest.token = instance.entry.untold
            self._introduce_later(instance)

    def _may_live(self, entry: Entry) -> bool:
        """Not one that waited for an owner, nor the box of a paused sandbox, nor one whose predecessor still lives."""
        if not entry.sandbox_id or entry.sandbox_id in self._snapshots.paused:
            return False
        before = self._instances.get(entry.sandbox_id)
        return before is None or before.entry.box_id != entry.replaces

    async def _tidy(self) -> None:
        """A server that stops in good order leaves only its sandboxes behind."""
        self._sampler.close()
        await self._warm.close()
        await self._spares.close()
        if not self._instances:
            await asyncio.to_thread(self._host.cgroups.remove, self._host.names.cgroup_parent)


def _owned(entry: Entry, order: SandboxOrder) -> Entry:
    """The record of a box that has found its owner. Its token is new: who made it knew the old one."""
    return replace(
        entry,
        sandbox_id=order.sandbox_id,
        hostname=order.hostname,
        resources=order.resources,
        token=secrets.token_urlsafe(32),
    )


def _order_of(entry: Entry) -> SandboxOrder:
    """What was asked for when this box was claimed."""
    return SandboxOrder(entry.sandbox_id, entry.template, entry.resources, env=entry.env, hostname=entry.hostname)
