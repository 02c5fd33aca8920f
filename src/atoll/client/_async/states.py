"""What can be done to a sandbox as a whole: standby, pause, resume, snapshot, roll back, fork."""

from __future__ import annotations

from typing import TypeVar

from atoll.client import _exchange as exchange
from atoll.client._async.transport import AsyncTransport
from atoll.client._forks import Forks
from atoll.model import limits
from atoll.wire.public import (
    FileRestore,
    FileRestored,
    ForkList,
    SandboxFork,
    SandboxPause,
    SandboxResume,
    SandboxRollback,
    SandboxView,
    SnapshotCreate,
    SnapshotDiff,
    SnapshotView,
)

Self = TypeVar("Self", bound="AsyncStates")


class AsyncStates:
    """The part of a sandbox that is about its state."""

    _transport: AsyncTransport
    _view: SandboxView
    _path: str

    def __init__(self, transport: AsyncTransport, view: SandboxView) -> None:
        raise NotImplementedError  # a sandbox says how it is made

    async def standby(self) -> SandboxView:
        """Freeze it where it is; the next call, or traffic to one of its ports, wakes it in milliseconds.

        Example:
            await sb.standby()
        """
        return await self._change("standby")

    async def pause(self, *, memory: bool = True) -> SandboxView:
        """Put it on disk: nothing of it runs, and it survives a restart of the server and of the machine.

        Without `memory` only its disk is kept, and it boots afresh when it is resumed.

        Example:
            await sb.pause()
        """
        return await self._change("pause", SandboxPause(memory=memory))

    async def resume(self, *, timeout_s: float | None = None, memory: bool = True) -> SandboxView:
        """Wake it, with its processes, variables, open files and servers as they were; it has a new deadline.

        Without `memory` it boots from its disk instead, and what it had in memory is gone.

        Example:
            await sb.resume(timeout_s=600)
        """
        return await self._change("resume", SandboxResume(timeout_s=timeout_s, memory=memory))

    async def rollback(self, snapshot: str | SnapshotView) -> SandboxView:
        """Take it back to an earlier snapshot of itself. What it was until now is gone.

        Example:
            await sb.rollback(snap)
        """
        return await self._change("rollback", SandboxRollback(snapshot=exchange.snapshot_id(snapshot)))

    async def snapshot(
        self,
        name: str | None = None,
        *,
        memory: bool = True,
        expires_s: float | None = None,
        keep_last: int | None = None,
    ) -> SnapshotView:
        """What it is at this moment, disk and memory or the disk alone; it goes on.

        The snapshot is usable wherever a template is. `expires_s` is how long it is kept; `keep_last` removes all but
        so many of the unnamed snapshots of this sandbox.

        Example:
            snap = await sb.snapshot("ready")
        """
        body = SnapshotCreate(name=name, memory=memory, expires_s=expires_s, keep_last=keep_last)
        return await self._transport.call(
            "POST", f"{self._path}/snapshots", SnapshotView, body, read_s=limits.CLIENT_STATE_S_MAX
        )

    async def diff(self, snapshot: str | SnapshotView) -> SnapshotDiff:
        """What changed on its disk since a snapshot: files added, changed and removed.

        Example:
            for item in (await sb.diff(snap)).items:
                print(item.change, item.path)
        """
        where = exchange.query(against=self._view.id)
        path = f"/v1/snapshots/{exchange.segment(exchange.snapshot_id(snapshot))}/diff{where}"
        return await self._transport.call("GET", path, SnapshotDiff, read_s=limits.CLIENT_STATE_S_MAX)

    async def restore_file(self, snapshot: str | SnapshotView, path: str) -> int:
        """Put one file of a snapshot back, where it was; says how many bytes that were.

        Example:
            await sb.restore_file(snap, "/home/user/a.txt")
        """
        body = FileRestore(snapshot=exchange.snapshot_id(snapshot), path=path)
        restored = await self._transport.call(
            "POST", f"{self._path}/restore", FileRestored, body, read_s=limits.CLIENT_STATE_S_MAX
        )
        return restored.size

    async def fork(self: Self, count: int = 1, *, timeout_s: float | None = None, partial: bool = False) -> Forks[Self]:
        """Live copies of it, each with its own identity, network and token.

        If one cannot be made, those that were are killed and the error is raised; with `partial` those that were made
        are returned, and their `problems` say why the others are missing. If none was made the error is raised.

        Example:
            a, b = await sb.fork(2)
        """
        body = SandboxFork(count=count, timeout_s=timeout_s)
        made = await self._transport.call(
            "POST", f"{self._path}/fork", ForkList, body, read_s=limits.CLIENT_STATE_S_MAX
        )
        problems = [exchange.problem_error(item.problem) for item in made.items if item.problem is not None]
        views = [item.sandbox for item in made.items if item.sandbox is not None]
        if problems and not (partial and views):
            for view in views:
                await self._transport.fetch("DELETE", f"/v1/sandboxes/{exchange.segment(view.id)}")
            raise problems[0]
        copies = [type(self)(AsyncTransport.acquire(self._transport.config), view) for view in views]
        return Forks(copies, problems)

    async def _change(
        self, verb: str, body: SandboxPause | SandboxResume | SandboxRollback | None = None
    ) -> SandboxView:
        self._view = await self._transport.call(
            "POST", f"{self._path}/{verb}", SandboxView, body, read_s=limits.CLIENT_STATE_S_MAX
        )
        return self._view
