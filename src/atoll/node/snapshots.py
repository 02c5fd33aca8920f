"""Sandboxes at one moment: images taken of them, new ones made from images, and those that are asleep in one.

A paused sandbox is an image whose manifest names it: the manifest is the moment of truth in both directions. As soon as
it is written the sandbox is paused, and whatever box it still has is on its way out; as soon as it is removed the
sandbox runs again. So whenever a server is killed, the next start knows which of the two it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, MutableMapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import structlog

from atoll.model import ids, limits
from atoll.model.errors import AtollError, Conflict, NotFound
from atoll.node.disks import compare, space
from atoll.node.disks.original import original_open
from atoll.node.disks.pool import meaning, wanting_room
from atoll.node.ending import demolish
from atoll.node.host import Host
from atoll.node.imagelook import looking
from atoll.node.images import Image, cpu_features, restore_refusal
from atoll.node.instance import Instance
from atoll.node.journal import Entry
from atoll.node.putback import put_back
from atoll.node.spares import Spares
from atoll.node.steps import Steps
from atoll.node.walks import Walks
from atoll.node.warm import WarmPool
from atoll.wire.node import DiskChanges, ImageTaken, SandboxOrder, Space

Put = Callable[[Path], None]  # a disk to where it is used

log = structlog.get_logger("atoll.node")


class Snapshots:
    """The images of a node's sandboxes. `instances` is the node's own record of those that live."""

    def __init__(self, host: Host, spares: Spares, instances: MutableMapping[str, Instance], warm: WarmPool) -> None:
        self._host = host
        self._spares = spares
        self._instances = instances
        self._warm = warm
        self._walks = Walks()
        self._in_use: Counter[str] = Counter()
        self._unused = anyio.Event()
        """Replaced each time somebody lets go of an image."""
        self._moving: dict[str, anyio.Event] = {}
        """Images of paused sandboxes whose disks are not in their places yet."""
        self.paused: dict[str, str] = {}
        """Which image each paused sandbox sleeps in."""

    def recover(self) -> None:
        """Find the paused sandboxes again, before anything else is looked at."""
        self._host.images.settle_all()
        for image_id in self._host.images.known():
            if ids.is_id(ids.PAUSE, image_id) and (sandbox_id := self._sleeper(image_id)):
                if older := self.paused.get(sandbox_id):
                    self._drop(older)
                self.paused[sandbox_id] = image_id

    def _sleeper(self, image_id: str) -> str:
        """Who sleeps in an image, also in one that cannot be used any more: it can still be told why, and be killed."""
        try:
            return self._host.images.find(image_id).sandbox_id
        except AtollError as error:
            sandbox_id = self._host.images.sleeper(image_id)
            whose = {"image": image_id, "sandbox_id": sandbox_id}
            log.error("a paused sandbox cannot be woken", **whose, error=repr(error), detail=error.detail)
            return sandbox_id

    def _drop(self, image_id: str) -> None:
        """From an earlier sleep of a sandbox, of which it has woken since."""
        try:
            self._host.images.remove(image_id)
        except AtollError as error:
            log.error("an old image does not go", image=image_id, error=repr(error), detail=error.detail)

    # --- images ---

    async def take(self, sandbox_id: str, image_id: str, *, memory: bool, passing: bool = False) -> ImageTaken:
        """An image of a sandbox, which goes on; of a paused one it is a copy of what it sleeps in.

        One that is `passing` is thrown away soon, and at the next start in any case.
        """
        if sandbox_id in self.paused:
            image = await self._copy(self.paused[sandbox_id], image_id, memory=memory)
        else:
            image = await self._capture(self._instance(sandbox_id), image_id, memory=memory, passing=passing)
        return ImageTaken(image.has_memory, image.memory_bytes, image.disk_bytes)

    async def _copy(self, source_id: str, image_id: str, *, memory: bool) -> Image:
        await self._wait_kept(source_id)
        source = self._host.images.find(source_id)
        if not memory:
            source = replace(source, files={}, memory_bytes=0)
        with self.using(source_id):
            return await asyncio.to_thread(self._host.images.copy, source, image_id)

    async def _capture(self, instance: Instance, image_id: str, *, memory: bool, passing: bool) -> Image:
        frozen = instance.frozen
        await instance.thaw()
        if passing:
            await instance.cool()
        try:
            return await instance.capture(image_id, memory=memory, passing=passing)
        finally:
            if frozen and not instance.ending:
                await self._freeze_again(instance)

    async def _freeze_again(self, instance: Instance) -> None:
        """The image is whole whether or not this works; its caller tries once more, and knows what is on record."""
        try:
            with anyio.CancelScope(shield=True):
                await instance.freeze()
        except AtollError as error:
            log.error("a sandbox goes on", box=instance.entry.box_id, error=repr(error), detail=error.detail)

    async def remove(self, image_id: str) -> None:
        """Once nobody is being made from it. Those that were made from it have all that they need. Idempotent."""
        while self._in_use[image_id]:
            await self._unused.wait()
        await self._wait_kept(image_id)
        await asyncio.to_thread(self._host.images.remove, image_id)

    def known(self) -> frozenset[str]:
        """The snapshots that are whole."""
        return frozenset(one for one in self._host.images.known() if ids.is_id(ids.SNAPSHOT, one))

    async def diff(self, before: str, after: str) -> DiskChanges:
        """From an image to another, or to what a sandbox's disk is at this moment."""
        images = self._host.images
        images.find(before)
        with self.using(before):
            if ids.is_id(ids.SNAPSHOT, after):
                images.find(after)
                with self.using(after):
                    return await self._differences(before, after)
            async with self._moment(after) as moment:
                return await self._differences(before, moment)

    @contextlib.asynccontextmanager
    async def _moment(self, sandbox_id: str) -> AsyncIterator[str]:
        """A copy of a sandbox's disk that does not change while it is looked at, also if the sandbox wakes meanwhile.

        Without a manifest it is nobody's, whatever happens.
        """
        images = self._host.images
        moment = ids.mint(ids.PAUSE, time.time_ns() // 1_000_000, secrets.token_bytes(16))
        try:
            with anyio.CancelScope(shield=True), wanting_room():
                await self._disk_take(moment, sandbox_id)
            yield moment
        finally:
            with anyio.CancelScope(shield=True):
                await asyncio.to_thread(images.remove, moment)

    async def _disk_take(self, image_id: str, sandbox_id: str) -> None:
        images = self._host.images
        if (slept_in := self.paused.get(sandbox_id)) is not None:
            await self._wait_kept(slept_in)
        if slept_in is None or slept_in != self.paused.get(sandbox_id):
            disk = self._host.pool.disk_path(self._instance(sandbox_id).entry.box_id)
            await asyncio.to_thread(images.disk_take, image_id, disk)
            return
        with self.using(slept_in):
            source = images.find(slept_in)
            await asyncio.to_thread(images.disk_take, image_id, images.disk_path(source.id))

    async def _differences(self, before: str, after: str) -> DiskChanges:
        images = self._host.images
        return await self._walks.walk(partial(compare.changes, images.disk_path(before), images.disk_path(after)))

    async def space(self, image_id: str) -> Space:
        """What an image has alone and what it shares, disk and memory."""
        images = self._host.images
        images.find(image_id)
        with self.using(image_id):
            disk = await self._walks.walk(partial(space.of_disk, images.disk_path(image_id)))
            memory = await asyncio.to_thread(space.of_files, images.memory_path(image_id))
        return Space(disk.own_bytes + memory.own_bytes, disk.shared_bytes + memory.shared_bytes)

    async def file_restore(self, image_id: str, sandbox_id: str, path: str) -> int:
        """One file of an image, put into a running sandbox as it was. Who deletes the image does not wait for it.

        Conflict (asleep) if the sandbox is in standby.
        """
        instance = self._instance(sandbox_id)
        if instance.frozen:
            raise Conflict("the sandbox is in standby", code="asleep")
        self._host.images.find(image_id)
        with self.using(image_id):
            found = await asyncio.to_thread(original_open, self._host.images.disk_path(image_id), path)
        await put_back(instance, path, found)
        return found.size_bytes

    def in_use(self, image_id: str) -> bool:
        return self._in_use[image_id] > 0

    @contextlib.contextmanager
    def using(self, image_id: str) -> Iterator[None]:
        self._in_use[image_id] += 1
        try:
            yield
        finally:
            self._in_use[image_id] -= 1
            if not self._in_use[image_id]:
                del self._in_use[image_id]
                self._unused.set()
                self._unused = anyio.Event()

    # --- sandboxes out of images ---

    async def create(self, order: SandboxOrder, steps: Steps, *, replaces: str = "") -> Instance:
        """A new sandbox that begins where the image stopped, with an identity of its own."""
        image = self._usable(order.image, memory=order.memory)
        with self.using(image.id):
            entry = replace(self._entry(order, image), replaces=replaces)
            disk, quota_bytes = self._host.images.disk_path(image.id), order.resources.disk_bytes

            def put(own: Path) -> None:
                self._host.pool.disk_create(own.name, disk, quota_bytes)

            instance = await self._awaken(entry, put, image, steps)
            await self._identify(instance, {**image.env, **order.env}, steps)
            return instance

    def _usable(self, image_id: str, *, memory: bool) -> Image:
        image = self._host.images.find(image_id)
        if not memory:
            return replace(image, files={})
        refused = restore_refusal(image, self._host.runtime_version, cpu_features())
        if refused is not None:
            raise refused
        return image

    def _entry(self, order: SandboxOrder, image: Image) -> Entry:
        """The record of what is to live, in a box of which nothing is known yet."""
        entry = self._host.entry(
            order.sandbox_id,
            order.template,
            order.resources,
            slot="",
            hostname=order.hostname,
            boot=image.boot if image.has_memory else None,
        )
        return replace(entry, volumes=order.volumes)

    async def _awaken(self, entry: Entry, put: Put, image: Image, steps: Steps) -> Instance:
        """Make the box while the image is being looked at; nothing of it lives before all of it was."""
        with self._warm.busy():
            async with looking(self._host.images, image) as look:
                instance = await self._moved_in(entry, put, image, steps) or await self._boxed(entry, put, steps)
                async with instance.kept_or_demolished():
                    await instance.boot(steps, image, look)
                return instance

    async def _moved_in(self, entry: Entry, put: Put, image: Image, steps: Steps) -> Instance | None:
        """A box that waited for something to live, if there is one that fits; else, or if that failed, None."""
        if not image.has_memory or entry.volumes:
            return None  # what waits has nothing behind its slots
        shell = self._warm.claim_box(image.boot, entry.resources)
        if shell is None:
            return None
        try:
            async with shell.kept_or_demolished():
                await shell.move_in(entry, put, steps)
            return shell
        except AtollError as error:
            log.warning("a box that waited was of no use", error=repr(error), detail=error.detail)
            steps.failed.append("shell")
            return None

    async def _boxed(self, entry: Entry, put: Put, steps: Steps) -> Instance:
        """A box of its own."""
        slot = self._spares.slot()
        await self._spares.ensure(slot)
        steps.done("network")
        entry = replace(entry, slot=slot)
        disk = self._host.pool.disk_path(entry.box_id)
        try:
            self._host.journal.write(entry)
            with meaning("the disk"):
                await asyncio.to_thread(put, disk)
            steps.done("disk")
        except BaseException:
            with anyio.CancelScope(shield=True):
                await demolish(self._host, entry)
            raise
        return await Instance.prepare(self._host, entry, disk, steps)

    async def _identify(self, instance: Instance, env: Mapping[str, str], steps: Steps) -> None:
        async with instance.kept_or_demolished(), instance.hung_up_if_it_dies():
            await instance.become(instance.entry, env)
            await instance.attach_volumes()
            steps.done("identity")

    # --- sleep ---

    async def pause(self, sandbox_id: str, *, memory: bool) -> tuple[Instance, str]:
        """Put a sandbox to sleep. What is left of its box is the caller's: `disk_keep`, then to take it down.

        Says which image it sleeps in.
        """
        instance = self._instance(sandbox_id)
        await instance.thaw()
        image_id = ids.mint(ids.PAUSE, time.time_ns() // 1_000_000, secrets.token_bytes(16))
        await instance.capture(image_id, memory=memory, asleep=True)
        with anyio.CancelScope(shield=True):
            if self._instances.get(sandbox_id) is not instance:
                await asyncio.to_thread(self._host.images.remove, image_id)
                raise Conflict("the sandbox ended while it was being paused", code="not_running")
            del self._instances[sandbox_id]
            self.paused[sandbox_id] = image_id
            self._moving[image_id] = anyio.Event()
            await instance.strike()
        return instance, image_id

    def paused_with_memory(self, sandbox_id: str) -> bool | None:
        """Whether a paused sandbox has its memory beside its disk; None if it is not, or cannot be read."""
        try:
            return self._host.images.described(self.paused[sandbox_id]).has_memory
        except (KeyError, AtollError):
            return None

    async def disk_keep(self, image_id: str, instance: Instance) -> None:
        """After a pause: the sandbox's own disk in the place of the copy. Whoever needs one of the two waits for it."""
        try:
            with anyio.CancelScope(shield=True):
                await asyncio.to_thread(self._disk_keep, image_id, instance.entry.box_id)
        finally:
            self._moving.pop(image_id).set()

    def _disk_keep(self, image_id: str, box_id: str) -> None:
        try:
            self._host.images.disk_keep(image_id, self._host.pool.disk_path(box_id))
        except OSError as error:
            # The copy that was taken is as good, but for the quota, which begins anew.
            log.error("a paused sandbox keeps a copy of its disk", image=image_id, error=repr(error))

    async def settle(self, image_id: str) -> None:
        """Of two disks whose change of places came to nothing one goes, as soon as there is room for that."""
        while self._host.images.is_unsettled(image_id):
            try:
                await asyncio.to_thread(self._host.images.settle, image_id)
            except OSError as error:
                log.warning("a copy of a disk goes later", image=image_id, error=repr(error))
                await asyncio.sleep(limits.LOOP_RETRY_S)

    async def _wait_kept(self, image_id: str) -> None:
        if (moving := self._moving.get(image_id)) is not None:
            await moving.wait()

    async def resume(self, order: SandboxOrder, steps: Steps) -> Instance:
        """Wake a paused sandbox: the same one, with the same token; or boot its disk, if its memory is not wanted.

        Until it answers it counts as paused.
        """
        try:
            image_id = self.paused[order.sandbox_id]
        except KeyError:
            raise NotFound("there is no such paused sandbox here", code="sandbox_not_found") from None
        await self._wait_kept(image_id)
        image = self._usable(image_id, memory=order.memory)
        entry = self._entry(order, image)
        if image.has_memory:
            entry = replace(entry, token=image.token, env=image.env)

        def put(own: Path) -> None:
            self._host.images.disk_lend(image.id, own)
            # It has this cap already, unless it is the copy that was left by a wake-up that came to nothing.
            self._host.pool.disk_limit(own.name, order.resources.disk_bytes)

        instance = await self._awaken(entry, put, image, steps)
        if image.has_memory:
            await self._attach(instance)
        else:
            await self._identify(instance, image.env, steps)
        return instance

    async def _attach(self, instance: Instance) -> None:
        async with instance.kept_or_demolished(), instance.hung_up_if_it_dies():
            await instance.gate_open()
            await instance.network_tell()
            await instance.attach_volumes()

    def woken(self, sandbox_id: str) -> str | None:
        """From here on it is not paused any more; the image that it slept in is the caller's to remove."""
        image_id = self.paused.pop(sandbox_id, None)
        if image_id is not None:
            self._host.images.forget(image_id)
        return image_id

    def _instance(self, sandbox_id: str) -> Instance:
        try:
            return self._instances[sandbox_id]
        except KeyError:
            raise NotFound("there is no such sandbox here", code="sandbox_not_found") from None
