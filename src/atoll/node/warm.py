"""The pool: sandboxes that live already and wait for an owner, so that a create costs milliseconds.

    template ──warm image──▶ shell ──restore──▶ live ──claim──▶ somebody's sandbox
                             (created, empty)   (answers)

A claim gives a live one its identity: token, environment, name, machine id, limits. Nobody has seen it before, and of
its earlier life it knows nothing. Where none is live, the one that is coming to life is waited for, or a shell is
brought to life, which costs the restore; where there is no shell, all of it is done on the spot. The supply follows
what was asked for lately, within a share of the free memory; it is made one at a time and never while somebody waits
for a create.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque

import anyio
import structlog

from atoll.model import limits
from atoll.model.resources import Resources
from atoll.node import admission, templates, warmimages
from atoll.node.background import detail_of
from atoll.node.host import Host
from atoll.node.images import Boot, Image
from atoll.node.instance import Instance
from atoll.node.shelf import Shelf
from atoll.node.spares import Spares
from atoll.node.steps import Steps
from atoll.wire.node import WarmCount

log = structlog.get_logger("atoll.node")


def wanted(demand: int, shell_demand: int, ceiling: int, available_bytes: int) -> WarmCount:
    """How many of one template should be ready: what is asked for, within the ceiling and the memory; pure.

    Those that are live come first; shells have what memory they leave.
    """
    most_bytes = max(0, available_bytes) * limits.WARM_MEMORY_SHARE
    live = min(max(limits.WARM_FLOOR, demand), ceiling, math.floor(most_bytes / limits.WARM_BOX_BYTES))
    rest_bytes = most_bytes - live * limits.WARM_BOX_BYTES
    shells = min(max(limits.WARM_FLOOR, shell_demand), ceiling, math.floor(rest_bytes / limits.WARM_SHELL_BYTES))
    return WarmCount(live, max(shells, min(live, 1)))  # whoever is live was a shell first


class WarmPool:
    """The sandboxes of one node that wait for an owner. `size` is the most per template; 0 switches it off."""

    def __init__(self, host: Host, spares: Spares, size: int) -> None:
        self._host = host
        self._spares = spares
        self._size = size
        self._shelves: dict[str, Shelf] = {}
        self._changed = asyncio.Event()
        self._dead: list[Instance] = []
        self._busy = 0
        self._busy_until_s = 0.0

    def claim(self, template: str, resources: Resources) -> Instance | None:
        """A live sandbox without an owner, or None. It is the caller's from here on."""
        shelf = self._shelves.get(template)
        if shelf is None or not _usual(resources):
            return None
        shelf.asked_at_s.append(time.monotonic())
        instance = self._first_alive(shelf.live)
        if not shelf.live:  # else there is time: nothing is made so soon after a claim
            self._changed.set()
        return instance

    def has_live(self, template: str, resources: Resources) -> bool:
        """Whether a claim would find one now."""
        shelf = self._shelves.get(template)
        return shelf is not None and _usual(resources) and any(instance.alive for instance in shelf.live)

    async def claim_coming(self, template: str, resources: Resources) -> Instance | None:
        """One that is just coming to life, when it has; None if there is none."""
        shelf = self._shelves.get(template)
        return await shelf.wait_coming() if shelf is not None and _usual(resources) else None

    def claim_shell(self, template: str, resources: Resources) -> tuple[Instance, Image] | None:
        """A box that needs only to be restored into, and the image for it."""
        shelf = self._shelves.get(template)
        if shelf is None or shelf.image is None or not _usual(resources):
            return None
        shelf.shells_asked_at_s.append(time.monotonic())
        self._changed.set()
        instance = self._first_alive(shelf.shells)
        return (instance, shelf.image) if instance is not None else None

    def claim_box(self, boot: Boot, resources: Resources) -> Instance | None:
        """A shell for a life of somebody else's that began as this one would have."""
        for template, shelf in self._shelves.items():
            if shelf.image is not None and shelf.image.boot == boot and shelf.late_root:
                shell = self.claim_shell(template, resources)
                return shell[0] if shell else None
        return None

    def image(self, template: str) -> Image | None:
        """The warm image of a template, if it is made."""
        shelf = self._shelves.get(template)
        return shelf.image if shelf else None

    def counts(self) -> dict[str, WarmCount]:
        """For each template, how many are live and how many are shells."""
        return {name: WarmCount(len(shelf.live), len(shelf.shells)) for name, shelf in self._shelves.items()}

    @property
    def ceiling(self) -> int:
        """How many of one template may be live."""
        return self._size

    def entries_bytes(self) -> int:
        """The memory that those who wait are reckoned with."""
        return sum(
            count.live * limits.WARM_BOX_BYTES + count.shells * limits.WARM_SHELL_BYTES
            for count in self.counts().values()
        )

    def busy(self) -> _Busy:
        """While somebody waits for a create, nothing is made in advance."""
        return _Busy(self)

    def quiet_s(self) -> float:
        """For how long nobody has waited for a sandbox."""
        if self._busy:
            return 0.0
        asked_s = (shelf.asked_at_s[-1] for shelf in self._shelves.values() if shelf.asked_at_s)
        return time.monotonic() - max(self._busy_until_s, max(asked_s, default=0.0))

    async def run(self) -> None:
        """Keep the shelves as full as they should be."""
        if self._size == 0:
            return
        while True:
            self._changed.clear()
            try:
                await self._shelve()
                moved = await self._step()
            except Exception as error:  # whatever it is, the supply goes on as soon as it can
                log.error("the pool cannot be filled", error=repr(error), detail=detail_of(error))
                moved = False
                await asyncio.sleep(limits.WARM_LOOK_S)
            if not moved:
                await self._wait_changed(self._rest_s() or limits.WARM_LOOK_S)

    async def _shelve(self) -> None:
        """A shelf for each template as it is now."""
        for template in templates.known(self._host.pool):
            shelf = self._shelves.setdefault(template.name, Shelf(template))
            if shelf.template != template:
                await self._empty(shelf)
                shelf.template, shelf.image = template, None

    async def close(self) -> None:
        for shelf in self._shelves.values():
            await self._empty(shelf)
        while self._dead:
            await _demolish(self._dead.pop())

    def _first_alive(self, instances: deque[Instance]) -> Instance | None:
        """Take the first that has not died while it waited; those that have are set aside."""
        while instances:
            instance = instances.popleft()
            if instance.alive:
                return instance
            self._dead.append(instance)
        return None

    async def _step(self) -> bool:
        """Make one thing, or take one away; False when all is as it should be."""
        self._set_dead_aside()
        if self._dead:
            await _demolish(self._dead.pop())
            return True
        if self._busy or self._rest_s():
            return False
        for shelf in self._shelves.values():
            if shelf.image is None:
                shelf.image = await warmimages.ensure(self._host, self._spares, shelf.template)
                return True
        target = self._targets()
        for name, shelf in self._shelves.items():
            for ready, most in ((shelf.live, target[name].live), (shelf.shells, target[name].shells)):
                if len(ready) > most + 1 or (ready and not most):  # no memory to spare, or nobody asks any more
                    await _demolish(ready.pop())
                    return True
        for name, shelf in sorted(self._shelves.items(), key=lambda item: len(item[1].live)):
            if len(shelf.live) < target[name].live:
                await self._enliven(shelf)
                return True
            if len(shelf.shells) < target[name].shells:
                shelf.shells.append(await self._shell(shelf))
                return True
        return False

    def _rest_s(self) -> float:
        """Whoever has just got one is about to use it, and the machine is theirs; less long if a shelf is empty."""
        asked = [shelf for shelf in self._shelves.values() if shelf.asked_at_s]
        rest_s = limits.WARM_REST_S if all(shelf.live for shelf in asked) else limits.WARM_REST_EMPTY_S
        return max(0.0, rest_s - self.quiet_s())

    def _set_dead_aside(self) -> None:
        for shelf in self._shelves.values():
            for instances in (shelf.live, shelf.shells):
                for instance in [one for one in instances if not one.alive]:
                    instances.remove(instance)
                    self._dead.append(instance)

    def _targets(self) -> dict[str, WarmCount]:
        now_s = time.monotonic()
        available = admission.host_memory().available - limits.MEMORY_RESERVE_BYTES + self.entries_bytes()
        share = available // max(1, len(self._shelves))
        return {
            name: wanted(shelf.demand(now_s), shelf.shell_demand(now_s), self._size, share)
            for name, shelf in self._shelves.items()
        }

    async def _shell(self, shelf: Shelf) -> Instance:
        assert shelf.image is not None
        slot = self._spares.slot()
        await self._spares.ensure(slot)
        entry = self._host.entry(
            "", shelf.template.name, Resources(), slot=slot, hostname="sandbox", boot=shelf.image.boot
        )
        shell = await Instance.prepare(self._host, entry, self._host.images.disk_path(shelf.image.id), Steps())
        shelf.late_root = shell.late_root
        return shell

    async def _enliven(self, shelf: Shelf) -> None:
        """One more that answers, for the shelf or for whoever waits for it."""
        shelf.coming += 1
        instance: Instance | None = None
        try:
            instance = await self._brought_to_life(shelf)
        finally:
            shelf.coming -= 1
            shelf.arrived(instance)

    async def _brought_to_life(self, shelf: Shelf) -> Instance:
        """It gets a token of its own at once, because the image's is in every copy of it; or its owner gives it one."""
        assert shelf.image is not None
        instance = shelf.shells.popleft() if shelf.shells else await self._shell(shelf)
        async with instance.kept_or_demolished(), instance.hung_up_if_it_dies():
            await instance.boot(Steps(), shelf.image)
            if not shelf.awaited():
                await instance.become(instance.entry, {})
                await warmimages.run_once(instance)
        return instance

    async def _empty(self, shelf: Shelf) -> None:
        for instances in (shelf.live, shelf.shells):
            while instances:
                await _demolish(instances.pop())

    async def _wait_changed(self, within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                await self._changed.wait()
        except TimeoutError:
            return


class _Busy:
    def __init__(self, pool: WarmPool) -> None:
        self._pool = pool

    def __enter__(self) -> None:
        self._pool._busy += 1

    def __exit__(self, *_: object) -> None:
        self._pool._busy -= 1
        self._pool._busy_until_s = time.monotonic()
        self._pool._changed.set()


def _usual(resources: Resources) -> bool:
    """Those who wait were made with the usual memory, and their inside was told so; other wishes need others."""
    return resources.memory_bytes == Resources().memory_bytes


async def _demolish(instance: Instance) -> None:
    with anyio.CancelScope(shield=True):
        await instance.demolish()
