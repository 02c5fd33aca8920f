"""One sandbox on this machine: its box, its network, its guest; made in order, watched, and taken down.

    entry written ─▶ disk, cgroup, folder ─▶ boundary created ─▶ entry says who lives ─▶ started ─▶ guest answers

Whatever fails on the way, and whatever is found half made after a kill, goes through the same `demolish`, which needs
nothing but the journal's entry.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from atoll.model import limits
from atoll.model.errors import AtollError
from atoll.model.lifecycle import EndReason
from atoll.model.resources import Resources
from atoll.node import volumes
from atoll.node.activity import Activity
from atoll.node.bundling import GUEST_PORT, bundle_of
from atoll.node.disks.pool import meaning, pool_full, wanting_room
from atoll.node.ending import cause_of, demolish
from atoll.node.farewell import hung_up_if_dead
from atoll.node.firstanswer import first_answer
from atoll.node.guestlink import GuestLink
from atoll.node.hashing import file_hashes
from atoll.node.host import Host
from atoll.node.identity import identity_of
from atoll.node.images import Image, cpu_features
from atoll.node.incoming import Incomings
from atoll.node.journal import Entry
from atoll.node.memorytake import MemoryTake
from atoll.node.memorywatch import Watched
from atoll.node.network.netns import Network
from atoll.node.network.plan import Pair
from atoll.node.portdial import PortDial
from atoll.node.runtime.base import Box, Seen
from atoll.node.silence import wait_silent
from atoll.node.steps import Steps
from atoll.wire.node import GuestStream


class Instance:
    """A sandbox that lives here."""

    def __init__(self, host: Host, entry: Entry, network: Network, box: Box) -> None:
        self.entry = entry
        self.ending = False
        self.moved_in = False  # with a disk that was not its box's: the old one is to be removed
        self._copied = False  # whether its memory is that of others too, until it has drawn its own random numbers
        self._stand = anyio.Lock()
        self._host = host
        self._network = network
        self._box = box
        self.guest = GuestLink(box.connect_guest, entry.token, lambda: network.dial_begin(GUEST_PORT))
        self.ports = PortDial(network, self.guest, reserved=(GUEST_PORT,))
        self.activity = Activity(self.ports.in_use, lambda: host.egress.moved_at_s(self.entry.sandbox_id))
        self.memory: Watched | None = None

    @classmethod
    async def create(
        cls, host: Host, entry: Entry, disk: Path, steps: Steps, *, env: Mapping[str, str], image: Image | None = None
    ) -> Instance:
        """Make all of it, from a disk and, if there is one, a memory image. On an error or a cancel nothing is left."""
        instance = await cls.prepare(host, entry, disk, steps)
        async with instance.kept_or_demolished(), instance.hung_up_if_it_dies():
            await instance.boot(steps, image)
            await instance.become(instance.entry, env)
            await instance.attach_volumes()
            steps.done("identity")
        return instance

    @contextlib.asynccontextmanager
    async def kept_or_demolished(self) -> AsyncIterator[None]:
        """While something is done to a box that has no owner yet: on an error or a cancel nothing of it is left."""
        try:
            yield
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.demolish()
            raise

    def hung_up_if_it_dies(self) -> AbstractAsyncContextManager[None]:
        """While nobody waits for its death yet."""
        return hung_up_if_dead(self._box, self.guest)

    @classmethod
    async def prepare(cls, host: Host, entry: Entry, disk: Path, steps: Steps) -> Instance:
        """All but the life in it: disk, limits, network and boundary. On an error or a cancel nothing is left."""
        try:
            host.journal.write(entry)
            with wanting_room():
                return await cls._prepare(host, entry, disk, steps)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await demolish(host, entry)
            raise

    @classmethod
    async def _prepare(cls, host: Host, entry: Entry, disk: Path, steps: Steps) -> Instance:
        pair = Pair.of(host.names, entry.slot)
        root = host.pool.disk_path(entry.box_id)
        if disk != root:  # else it is there already: that of a paused sandbox is its own
            await asyncio.to_thread(host.pool.disk_create, entry.box_id, disk, entry.resources.disk_bytes)
        steps.done("disk")
        host.cgroups.create(host.names.cgroup(entry.box_id), entry.resources)
        host.names.box_folder(entry.box_id).mkdir(parents=True, mode=0o700)
        network = Network(pair)
        steps.done("cgroup")
        try:
            bundle = bundle_of(host, entry, network, root)
            box = await host.driver.create(bundle)
            entry = entry.lives_as(box.record())
            host.journal.write(entry)
            host.cgroups.update(bundle.cgroup, entry.resources)
            steps.done("boundary_create")
        except BaseException:
            network.close()
            raise
        return cls(host, entry, network, box)

    async def move_in(self, entry: Entry, put: Callable[[Path], None], steps: Steps) -> None:
        """Make an empty box that waited somebody's, with a disk that `put` puts in the place of its own.

        The record first, as for a new box: whoever finds it takes down the disk of that name and the box with it. The
        disk that goes is under another name until `old_disk_remove`, or the next start.
        """
        own, cgroup = self.entry, self._host.names.cgroup(self.entry.box_id)
        cpu_s = self._host.cgroups.cpu_s(cgroup)
        self.entry = replace(entry, box_id=own.box_id, slot=own.slot, live=own.live, boot=own.boot, cpu_base_s=cpu_s)
        self._host.journal.write(self.entry)
        self.moved_in = True
        await asyncio.to_thread(self._disk_change, put)
        steps.done("disk")
        await self._box.root_change(self._host.pool.disk_path(own.box_id))
        self._host.cgroups.update(cgroup, entry.resources)
        steps.done("boundary_create")

    def _disk_change(self, put: Callable[[Path], None]) -> None:
        pool, box_id = self._host.pool, self.entry.box_id
        pool.disk_set_aside(box_id)
        with meaning("the disk"):
            put(pool.disk_path(box_id))

    async def old_disk_remove(self) -> None:
        """Of one that moved in, a moment later. What fails is left to the next start, which finds it by name."""
        await asyncio.sleep(limits.TIDY_AFTER_S)
        with contextlib.suppress(AtollError):
            await asyncio.to_thread(self._host.pool.disk_aside_delete, self.entry.box_id)

    @property
    def late_root(self) -> bool:
        return self._box.late_root

    async def boot(self, steps: Steps, image: Image | None, seen: Seen | None = None) -> None:
        """Life: a fresh start, or that of an image, which may still be looked at. Afterwards the guest answers."""
        if image is None or not image.has_memory:
            await self._box.start()
        else:
            self._copied = True
            await self._box.restore(self._host.images.memory_path(image.id), seen)
            self.guest.token = image.token
        steps.done("boundary_start")
        await first_answer(self._box, self.guest)
        self._watch_memory()
        steps.done("guest_boot")

    def _watch_memory(self) -> None:
        """From here on its guard may rest while its memory does; that of an earlier version looks itself, as ever."""
        if not self.guest_is_ours():
            return
        self.memory = Watched(
            self._host.cgroups.memory_gauge(self._host.names.cgroup(self.entry.box_id)),
            self.entry.resources.memory_bytes,
            lambda: self.guest.become("memory.lease", {}),
            self._keeps_still,
        )
        self._host.memory_watch.add(self.memory)

    def guest_is_ours(self) -> bool:
        """Whether the guest is of this server's version, and not of an earlier one's."""
        return self.entry.boot.guest_app == str(self._host.guest_app)

    def _unwatch_memory(self) -> None:
        if self.memory is not None:
            self._host.memory_watch.remove(self.memory)
            self.memory = None

    async def become(
        self, entry: Entry, env: Mapping[str, str], *, timeout_s: float = limits.GUEST_REPLY_S_MAX
    ) -> None:
        """Take on an identity; of the one before nothing is left that the guest could tell."""
        self.promise(entry, env)
        await self.introduce(timeout_s)

    def promise(self, entry: Entry, env: Mapping[str, str], *, untold: str = "") -> None:
        """It is somebody's, by the record, before its guest hears it in `introduce`: a server that dies in between
        finds a sandbox that control calls "creating", and takes it down, or one that is `untold`."""
        cpu_s = self._host.cgroups.cpu_s(self._host.names.cgroup(entry.box_id))
        self.entry = replace(entry, live=self.entry.live, env=dict(env), cpu_base_s=cpu_s, untold=untold)
        self._host.journal.write(self.entry)

    async def introduce(self, timeout_s: float = limits.GUEST_REPLY_S_MAX) -> None:
        """Tell the guest who it is from now on."""
        identity = {**identity_of(self.entry, self.entry.env), "copied": self._copied}
        async with self.guest.calling("identity", identity, timeout_s=timeout_s) as answer:
            await self.gate_open()  # while the guest works: nothing of its owner's runs before it has answered
            said = await answer()
        self._copied = False
        if said.get("cold") is True:
            self._host.rewarming.add(self._warm_again)
        self.guest.token = self.entry.token
        if self.entry.untold:
            self._note_freed(untold="")
        await self.network_tell()

    async def _warm_again(self) -> None:
        """Interpreters that had to go. One that stands still or is slow does it by itself, later."""
        if not (self.ending or self._keeps_still()):
            with contextlib.suppress(AtollError):
                await self.guest.call("contexts.warm_again", timeout_s=limits.CONTEXT_REWARM_S_MAX)

    async def cool(self) -> None:
        """Before copies are made of it: what each of them would have to end at once is not worth being copied."""
        if self.guest_is_ours():
            with contextlib.suppress(AtollError):  # then it is copied
                if (await self.guest.call("contexts.cool")).get("cold") is True:
                    self._host.rewarming.add(self._warm_again)

    async def gate_open(self) -> None:
        """From here on the sandbox reaches what its policy allows."""
        await self._host.egress.open(self.entry.sandbox_id, self._network)

    async def network_tell(self) -> None:
        """What the inside must know about the network, if there is anything; one that is frozen hears it later."""
        known = self._host.egress.inside(self.entry.sandbox_id)
        if known is not None and not self.frozen:
            await self.guest.call("network", known)

    @contextlib.asynccontextmanager
    async def operation(self, op: str, params: dict[str, Any], incomings: Incomings) -> AsyncIterator[GuestStream]:
        """A guest operation for a caller from outside."""
        if self.guest_is_ours():  # others do not know of incoming files
            params = incomings.offered(op, params)
        async with (
            self.guest.stream(op, params) as stream,
            incomings.taken(stream, params, self._host.pool.disk_path(self.entry.box_id)) as taken,
        ):
            yield taken

    async def attach_volumes(self) -> None:
        """Bind each volume to where its owner wants it."""
        if self.entry.volumes:
            await self.guest.call("volumes", {"mounts": volumes.placed(self.entry.volumes)})

    def takes_over(self) -> None:
        """The box that this one replaces is gone; true whether or not there is room to write it down."""
        self.entry = replace(self.entry, replaces="")
        with contextlib.suppress(AtollError):
            self._note()

    @classmethod
    async def adopt(cls, host: Host, entry: Entry) -> Instance | None:
        """The same sandbox after a restart of the server, or None if it does not live any more."""
        pair = Pair.of(host.names, entry.slot)
        if entry.live is None or not pair.exists():
            return None
        network = Network(pair)
        bundle = bundle_of(host, entry, network, host.pool.disk_path(entry.box_id))
        box = await host.driver.adopt(bundle, entry.live)
        if box is None:
            network.close()
            return None
        instance = cls(host, entry, network, box)
        await instance.gate_open()
        if entry.held:
            # Whoever held it was killed, before or after it stood still; that it did not is no reason to give it up.
            with contextlib.suppress(AtollError):
                await instance._go_on()
            instance._note(held=False, frozen=False)
        instance._watch_memory()
        return instance

    async def capture(
        self, image_id: str, *, memory: bool = True, asleep: bool = False, passing: bool = False
    ) -> Image:
        """An image of this moment, disk and memory, both taken while all of it stands still; then it goes on.

        With `asleep` the image is this sandbox's own sleep: it goes on only if that fails, and is its caller's to end.
        One that is `passing` is thrown away soon.
        """
        images = self._host.images
        with meaning("the image"):
            images.begin(image_id)
            try:
                if not memory:
                    await self.guest.call("sync")
                image = await self._take(image_id, memory=memory, asleep=asleep, passing=passing)
            except BaseException as error:
                with anyio.CancelScope(shield=True):
                    full = isinstance(error, AtollError) and images.is_full()
                    await self._release(image_id)
                if full:
                    raise pool_full(repr(error)) from error
                raise
        return image

    async def _take(self, image_id: str, *, memory: bool, asleep: bool, passing: bool) -> Image:
        disk = self._host.pool.disk_path(self.entry.box_id)
        async with contextlib.AsyncExitStack() as opened:
            taking = MemoryTake(self._host, self._box, self.entry, image_id, asleep=asleep, passing=passing)
            take = await opened.enter_async_context(taking) if memory else None

            def disk_take() -> None:
                self._host.images.disk_take(image_id, disk)

            async with self._held(for_good=asleep):
                if take is not None:
                    await take.write(disk_take)
                else:
                    await asyncio.to_thread(disk_take)
                if asleep:
                    return await self._describe(image_id, take, sandbox_id=self.entry.sandbox_id)
            return await self._describe(image_id, take, passing=passing)

    async def _release(self, image_id: str) -> None:
        """After a capture that came to nothing: first there is room again, then it goes on, which needs some."""
        try:
            await asyncio.to_thread(self._host.images.remove, image_id)
        finally:
            if self.entry.held and not self.ending:
                with contextlib.suppress(AtollError):
                    await self._go_on()

    async def _describe(
        self, image_id: str, take: MemoryTake | None, *, sandbox_id: str = "", passing: bool = False
    ) -> Image:
        """The manifest of an image, when all its parts are there; with it the image exists."""
        hashes = await take.hashes() if take else {}
        images, entry = self._host.images, self.entry
        folder = images.memory_path(image_id)
        image = Image(
            id=image_id,
            boot=entry.boot,
            token=self.guest.token,
            runtime_version=self._host.runtime_version,
            cpu_features=cpu_features(),
            files=await asyncio.to_thread(file_hashes, folder, hashes),
            sandbox_id=sandbox_id,
            env=entry.env,
            memory_bytes=sum(path.stat().st_size for path in folder.iterdir()),
            disk_bytes=await asyncio.to_thread(self._host.pool.disk_usage_bytes, entry.box_id),
        )
        await asyncio.to_thread(images.finish, image, passing=passing)
        images.seal(image)
        return image

    @contextlib.asynccontextmanager
    async def _held(self, *, for_good: bool) -> AsyncIterator[None]:
        """While all of it stands still; afterwards it goes on, unless it is meant to stand still for good.

        After an error it still stands still, and is its caller's to let go on.
        """
        self._note(held=True)
        self.guest.rest()  # nobody waits on it in an image
        if self.memory is not None:
            self.memory.hang_up()
        await self._box.pause()
        yield
        if not for_good:
            with anyio.CancelScope(shield=True):
                await self._go_on()

    async def _go_on(self) -> None:
        await self._box.resume()
        self._note_freed(held=False)

    @property
    def frozen(self) -> bool:
        """Whether it is in standby."""
        return self.entry.frozen

    async def freeze(self) -> None:
        """All of it stands still where it is; connections to it stay open and wait. Idempotent.

        By the runtime and not by the kernel's freezer: a sentry that was frozen in the middle of what its programs do
        may not survive being thawed (seen: within ten times).
        """
        async with self._stand:
            if self.frozen:
                return
            self._note(frozen=True)
            try:
                await self._box.pause()
            except BaseException:
                with anyio.CancelScope(shield=True), contextlib.suppress(AtollError):
                    await self._box.resume()
                self._note_freed(frozen=False)
                raise

    async def thaw(self) -> None:
        """It goes on. Idempotent."""
        async with self._stand:
            if self.frozen:
                # A server that was killed in between may find that it goes on already; whether it does is seen by
                # whoever calls it next.
                with contextlib.suppress(AtollError):
                    await self._box.resume()
                self._note_freed(frozen=False)

    def _note(self, **changes: bool | str) -> None:
        entry = replace(self.entry, **changes)  # type: ignore[arg-type]
        if not self.ending:
            self._host.journal.write(entry)
        self.entry = entry

    def _note_freed(self, **changes: bool | str) -> None:
        """What is so is so whether or not there is room to write it down: a restart forgives a record that says it
        stands still, or has not been told whose it is, and the next note corrects it.
        """
        self.entry = replace(self.entry, **changes)  # type: ignore[arg-type]
        with contextlib.suppress(AtollError):
            self._note()

    async def wait_death(self) -> tuple[EndReason, str]:
        """Returns when the sandbox has ended by itself, with the reason as far as the host can tell."""
        async with anyio.create_task_group() as tasks:
            silent = False

            async def listen() -> None:
                nonlocal silent
                await wait_silent(self.guest, self._keeps_still, self._heard_lately)
                silent = True
                tasks.cancel_scope.cancel()

            tasks.start_soon(listen)
            await self._box.wait_exited()
            tasks.cancel_scope.cancel()
        if silent:
            return EndReason.GUEST_UNRESPONSIVE, f"the guest did not answer {limits.PINGS_MISSED_MAX} times in a row"
        return cause_of(self._host, self.entry)

    def _keeps_still(self) -> bool:
        """Whether it cannot answer because we made it stand still."""
        return self.frozen or self.entry.held

    def _heard_lately(self) -> bool:
        return self.memory is not None and self.memory.heard_lately()

    @property
    def alive(self) -> bool:
        return self._box.alive()

    async def limit(self, resources: Resources) -> None:
        """Other limits from now on."""
        if resources == self.entry.resources:
            return
        self._host.cgroups.update(self._host.names.cgroup(self.entry.box_id), resources)
        if resources.disk_bytes != self.entry.resources.disk_bytes:
            await asyncio.to_thread(self._host.pool.disk_limit, self.entry.box_id, resources.disk_bytes)

    async def strike(self) -> None:
        """Every process of it has been killed when this returns: none of them executes another instruction, though the
        kernel may still be taking them apart. Until `end` it does so when nobody else wants the processor: they would
        run before the answer to whoever waits for this (5 of 8 ms).
        """
        self.ending = True
        cgroup = self._host.names.cgroup(self.entry.box_id)
        self._host.cgroups.give_way(cgroup, True)
        self._box.kill()
        self._host.cgroups.kill(cgroup)
        self._unwatch_memory()
        self.guest.hang_up()
        self.ports.hang_up()
        await self._host.egress.close(self.entry.sandbox_id, self._network)

    async def end(self) -> None:
        """Nothing of it is left in the process table when this returns; all that it was made of is still there."""
        await self.strike()
        self._host.cgroups.give_way(self._host.names.cgroup(self.entry.box_id), False)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.CGROUP_REMOVE_S_MAX):
                await self._box.wait_exited()

    async def demolish(self) -> None:
        await self.end()
        with contextlib.suppress(AtollError):
            # What is left of it is `discard`'s business, which does report errors.
            await self._box.destroy()
        self._network.close()
        await demolish(self._host, self.entry)
