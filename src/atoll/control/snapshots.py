"""Use cases of snapshots: take, list, find, delete, fork; and the rules by which they go.

A snapshot is on record as `making` before the node takes it, and as `ready` once all of it is there. What a killed
server left in between is removed at the next start, on both sides.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import anyio
import structlog

from atoll.control.authz import Principal
from atoll.control.clock import Clock
from atoll.control.events import Events
from atoll.control.ledger import Ledger
from atoll.control.sandboxes import Sandboxes, cursor_read, cursor_text, not_running
from atoll.control.states import States
from atoll.control.store import snapshots as rows
from atoll.control.store.engine import Store
from atoll.control.store.moments import to_us
from atoll.control.store.snapshots import SnapshotRecord
from atoll.model import ids, limits
from atoll.model.errors import AtollError, Conflict, InvalidArgument, NotFound
from atoll.model.lifecycle import State
from atoll.model.port import PortAccess
from atoll.model.sandbox import Sandbox, SandboxSpec, check_name
from atoll.model.snapshot import Snapshot, SnapshotState, beyond
from atoll.wire.node import DiskChanges, NodePort, Space

log = structlog.get_logger(__name__)

_CAN_BE_TAKEN = (State.RUNNING, State.STANDBY, State.PAUSED)


@dataclass(frozen=True, slots=True)
class SnapshotSpec:
    """What a caller asks for."""

    name: str | None = None
    memory: bool = True
    expires_s: float | None = None
    keep_last: int | None = None
    """Of the unnamed snapshots of this sandbox, keep only the newest so many, this one among them."""
    takes_name: bool = False
    """Whether a name that another snapshot has goes over to this one, once it is whole."""

    def checked(self) -> SnapshotSpec:
        if self.name is not None:
            check_name("name", self.name)
            if ids.is_id(ids.SNAPSHOT, self.name):
                raise InvalidArgument("this name looks like the id of a snapshot", code="invalid_name")
        if self.expires_s is not None and not 1 <= self.expires_s <= limits.SNAPSHOT_EXPIRY_S_MAX:
            raise InvalidArgument(
                f"expires_s is not between 1 and {limits.SNAPSHOT_EXPIRY_S_MAX}", code="invalid_timeout"
            )
        if self.keep_last is not None and not 1 <= self.keep_last <= limits.KEEP_LAST_MAX:
            raise InvalidArgument(f"keep_last is not between 1 and {limits.KEEP_LAST_MAX}", code="invalid_argument")
        return self


@dataclass(frozen=True, slots=True)
class Fork:
    """One copy that was asked for: the sandbox, or why there is none."""

    sandbox: Sandbox | None
    error: AtollError | None = None


class Snapshots:
    """The snapshots of all owners."""

    def __init__(
        self,
        store: Store,
        ledger: Ledger,
        states: States,
        sandboxes: Sandboxes,
        events: Events,
        node: NodePort,
        clock: Clock,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._states = states
        self._sandboxes = sandboxes
        self._events = events
        self._node = node
        self._clock = clock
        self._expiry = anyio.Event()
        self._given_up: set[str] = set()
        """Those that came to nothing and are on record still, because the database could not be written to."""

    async def take(self, principal: Principal, reference: str, spec: SnapshotSpec) -> Snapshot:
        """A snapshot of a sandbox that runs or sleeps; it goes on as it was."""
        await self.check_wish(spec)
        sandbox = await self._ledger.find(principal.owner, reference)
        snapshot = await self._in_turn(principal.owner, sandbox.id, spec, SnapshotState.READY)
        self._events.report(
            self._events.of(principal, "snapshot.taken", target=snapshot.id, detail={"sandbox": sandbox.id})
        )
        if spec.keep_last is not None:
            await self._keep_last(principal.owner, sandbox.id, spec.keep_last)
        return snapshot

    async def _in_turn(self, owner: str, sandbox_id: str, spec: SnapshotSpec, state: SnapshotState) -> Snapshot:
        """Take it when nobody else is at work on the sandbox."""
        async with self._states.exclusive.turn(sandbox_id):
            sandbox = await self._ledger.find(owner, sandbox_id)
            if sandbox.state not in _CAN_BE_TAKEN:
                raise not_running(sandbox)
            return await self._take(owner, sandbox, spec, state)

    async def check_wish(self, spec: SnapshotSpec) -> None:
        """Whether there may be such a snapshot."""
        spec.checked()
        await self._forget_given_up()
        if spec.name is not None and spec.name in {one.name for one in await self._node.templates()}:
            raise Conflict(f"{spec.name!r} is the name of a template", code="name_taken", hint="Choose another name.")

    async def _take(self, owner: str, sandbox: Sandbox, spec: SnapshotSpec, state: SnapshotState) -> Snapshot:
        now = self._clock.now()
        snapshot = Snapshot(
            id=ids.mint(ids.SNAPSHOT, to_us(now) // 1000, secrets.token_bytes(16)),
            name=None if spec.takes_name else spec.name,
            sandbox_id=sandbox.id,
            template=sandbox.template,
            resources=sandbox.resources,
            has_memory=spec.memory,
            state=SnapshotState.MAKING,
            created_at=now,
            expires_at=None if spec.expires_s is None else now + timedelta(seconds=spec.expires_s),
        )
        await self._store.write(rows.add, SnapshotRecord(owner, snapshot))
        with anyio.CancelScope(shield=True):
            try:
                passing = state is SnapshotState.PASSING
                taken = await self._node.image_take(sandbox.id, snapshot.id, memory=spec.memory, passing=passing)
                snapshot = replace(snapshot, has_memory=taken.has_memory).ready(taken.memory_bytes, taken.disk_bytes)
                snapshot = replace(snapshot, state=state, name=spec.name)
                await self._store.write(rows.ready, owner, snapshot, takes_name=spec.takes_name)
            except BaseException:
                await self.give_up(snapshot.id)
                raise
            finally:
                if sandbox.state is State.STANDBY:
                    await self._states.stand_still_again(sandbox)
        if snapshot.expires_at is not None:
            self.expiry_changed()
        return snapshot

    def expiry_changed(self) -> None:
        """Another snapshot may be the next to expire."""
        self._expiry.set()

    async def find(self, principal: Principal, reference: str) -> Snapshot:
        """By id or by name; of another owner it is as if it did not exist."""
        look_up = rows.by_id if ids.is_id(ids.SNAPSHOT, reference) else rows.by_name
        found = await self._store.read(look_up, principal.owner, reference[: limits.NAME_CHARS_MAX])
        if found is None or found.state is not SnapshotState.READY:
            raise NotFound(f"there is no snapshot {reference[:80]!r}", code="snapshot_not_found", hint="List them.")
        return found

    async def page(
        self, principal: Principal, sandbox: str | None, cursor: str | None, items_max: int
    ) -> tuple[list[Snapshot], str | None]:
        """The newest first, of one sandbox (which may have ended) or of all, and the cursor of what follows."""
        if not 1 <= items_max <= limits.PAGE_ITEMS_MAX:
            raise InvalidArgument(f"limit is not between 1 and {limits.PAGE_ITEMS_MAX}", code="invalid_query")
        sandbox_id = None if sandbox is None else (await self._ledger.find(principal.owner, sandbox)).id
        after = None if cursor is None else cursor_read(cursor, ids.SNAPSHOT)
        found = await self._store.read(rows.page, principal.owner, sandbox_id, after, items_max + 1)
        items = found[:items_max]
        following = cursor_text(items[-1].created_at, items[-1].id) if len(found) > items_max else None
        return items, following

    async def diff(self, principal: Principal, reference: str, against: str) -> DiskChanges:
        """What changed on the disk since a snapshot: until another, or until now."""
        before = await self.find(principal, reference)
        if ids.is_id(ids.SNAPSHOT, against):
            after = (await self.find(principal, against)).id
        else:
            sandbox = await self._ledger.find(principal.owner, against)
            if sandbox.state not in _CAN_BE_TAKEN:
                raise not_running(sandbox)
            after = sandbox.id
        return await self._node.image_diff(before.id, after)

    async def space(self, principal: Principal, reference: str) -> Space:
        """What a snapshot takes on the disk now, alone and together with others."""
        return await self._node.image_space((await self.find(principal, reference)).id)

    async def file_restore(self, principal: Principal, reference: str, sandbox_reference: str, path: str) -> int:
        """Put one file of a snapshot back into a sandbox, where it was; says how many bytes that were."""
        snapshot = await self.find(principal, reference)
        sandbox = await self._ledger.find(principal.owner, sandbox_reference)
        if sandbox.state is not State.RUNNING:
            sandbox = await self._states.awake(sandbox)
        try:
            size_bytes = await self._node.image_file_restore(snapshot.id, sandbox.id, path)
        except Conflict as error:  # it fell asleep in between
            if error.code != "asleep":
                raise
            sandbox = await self._states.awake(sandbox)
            size_bytes = await self._node.image_file_restore(snapshot.id, sandbox.id, path)
        detail = {"snapshot": snapshot.id, "path": path}
        self._events.report(self._events.of(principal, "snapshot.file_restored", target=sandbox.id, detail=detail))
        return size_bytes

    async def delete(self, principal: Principal, reference: str) -> None:
        """Sandboxes that were made from it have all that they need, and so have other snapshots."""
        snapshot = await self.find(principal, reference)
        await self.discard(snapshot.id)
        self._events.report(self._events.of(principal, "snapshot.deleted", target=snapshot.id))

    async def discard(self, snapshot_id: str) -> None:
        """Remove record and image. Idempotent."""
        # The record first: what is on the node without one is removed at the next start, the other way round it is not.
        await self._store.write(rows.remove, snapshot_id)
        with anyio.CancelScope(shield=True):
            await self._node.image_remove(snapshot_id)

    async def give_up(self, snapshot_id: str) -> None:
        """Discard one that nobody has heard of. On a disk that is full the record may have to wait; its name does, too.

        The image is not taken first: whether a write that failed has come about is not always known, and a record
        without an image would be a snapshot that is lost.
        """
        try:
            await self.discard(snapshot_id)
        except AtollError as error:
            log.warning("snapshot_given_up_later", snapshot_id=snapshot_id, error=repr(error))
            self._given_up.add(snapshot_id)
            self.expiry_changed()

    async def _forget_given_up(self) -> None:
        for snapshot_id in sorted(self._given_up):
            await self.discard(snapshot_id)
            self._given_up.discard(snapshot_id)

    async def _keep_last(self, owner: str, sandbox_id: str, keep_last: int) -> None:
        mine = await self._store.read(rows.page, owner, sandbox_id, None, limits.SNAPSHOTS_MAX)
        for old in beyond(mine, keep_last):
            await self.discard(old.id)

    async def fork(
        self,
        principal: Principal,
        reference: str,
        count: int,
        timeout_s: float | None,
        ports: PortAccess | None = None,
    ) -> list[Fork]:
        """Live copies of a sandbox, each with an identity of its own; one that fails does not spoil the others."""
        if not 1 <= count <= limits.FORKS_MAX:
            raise InvalidArgument(f"count is not between 1 and {limits.FORKS_MAX}", code="invalid_argument")
        sandbox = await self._ledger.find(principal.owner, reference)
        snapshot = await self._in_turn(principal.owner, sandbox.id, SnapshotSpec(), SnapshotState.PASSING)
        try:
            return await self._copies(principal, sandbox, snapshot, count, timeout_s, ports)
        finally:
            with anyio.CancelScope(shield=True):
                await self.give_up(snapshot.id)

    async def _copies(
        self,
        principal: Principal,
        sandbox: Sandbox,
        snapshot: Snapshot,
        count: int,
        timeout_s: float | None,
        ports: PortAccess | None,
    ) -> list[Fork]:
        spec = SandboxSpec(
            template=snapshot.id,
            metadata=sandbox.metadata,
            timeout_s=sandbox.timeout_s if timeout_s is None else timeout_s,
            on_deadline=sandbox.on_deadline,
            budget=sandbox.budget,
            on_budget=sandbox.on_budget,
            idle_timeout_s=sandbox.idle_timeout_s,
            auto_resume=sandbox.auto_resume,
            volumes=sandbox.volumes,
            network_of=sandbox.id,
            ports=ports,
        )
        made: list[Fork] = [Fork(None)] * count
        places = anyio.CapacityLimiter(limits.FORKS_AT_ONCE)

        async def one(index: int) -> None:
            try:
                async with places:
                    made[index] = Fork((await self._sandboxes.create(principal, spec))[0])
            except AtollError as error:
                made[index] = Fork(None, error)

        async with anyio.create_task_group() as tasks:
            for index in range(count):
                tasks.start_soon(one, index)
        return made

    async def reconcile(self) -> None:
        """Make record and node agree, once, at start: what is not whole on both sides goes."""
        known = {record.snapshot.id: record.snapshot for record in await self._store.read(rows.every)}
        there = self._node.image_ids()
        for snapshot in known.values():
            if snapshot.state is not SnapshotState.READY:
                await self.discard(snapshot.id)
            elif snapshot.id not in there:
                log.error("snapshot_lost", snapshot_id=snapshot.id)
        for stranger in there - known.keys():
            await self._node.image_remove(stranger)

    async def expire_step(self) -> None:
        """Remove what has expired or was given up, then wait for the next one. An error is a reason to try again."""
        self._expiry = anyio.Event()
        await self._forget_given_up()
        for snapshot_id in await self._store.read(rows.expired, self._clock.now()):
            await self.discard(snapshot_id)
        next_at: datetime | None = await self._store.read(rows.next_expiry)
        await self._clock.wait_until(next_at, self._expiry)
