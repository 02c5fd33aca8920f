"""Bodies about snapshots and about sandboxes that sleep, wake, fork and go back."""

from __future__ import annotations

from datetime import datetime

from atoll.model.snapshot import Snapshot
from atoll.wire.public.base import Answer, Problem, Request
from atoll.wire.public.sandboxes import ResourcesView, SandboxView


class SandboxPause(Request):
    """Put a sandbox on disk; without `memory` only its disk is kept, and it boots afresh when it is resumed."""

    memory: bool = True


class SandboxResume(Request):
    """Wake a sandbox; its deadline is so many seconds from now, as many as at its creation if not given.

    Without `memory` one that was paused with it boots from its disk instead, and its memory is gone.
    """

    timeout_s: float | None = None
    memory: bool = True


class SandboxRollback(Request):
    """Take a sandbox back to an earlier snapshot of itself, by id or name."""

    snapshot: str


class SandboxFork(Request):
    """Make live copies of a sandbox."""

    count: int = 1
    timeout_s: float | None = None


class ForkView(Answer):
    """One copy that was asked for: the sandbox, or the problem that kept it from being made."""

    sandbox: SandboxView | None = None
    problem: Problem | None = None


class ForkList(Answer):
    items: list[ForkView]


class SnapshotCreate(Request):
    """Take a snapshot: of disk and memory, or of the disk alone."""

    name: str | None = None
    memory: bool = True
    expires_s: float | None = None
    keep_last: int | None = None
    """Of the unnamed snapshots of this sandbox, keep only the newest so many."""


class SnapshotView(Answer):
    """A snapshot. `memory_bytes` is its own; `disk_bytes` is what the sandbox had written, shared with it."""

    id: str
    name: str | None
    sandbox_id: str
    template: str
    resources: ResourcesView
    has_memory: bool
    memory_bytes: int
    disk_bytes: int
    created_at: datetime
    expires_at: datetime | None

    @classmethod
    def of(cls, snapshot: Snapshot) -> SnapshotView:
        resources = snapshot.resources
        return cls(
            id=snapshot.id,
            name=snapshot.name,
            sandbox_id=snapshot.sandbox_id,
            template=snapshot.template,
            resources=ResourcesView(
                cpu=resources.cpu,
                memory_bytes=resources.memory_bytes,
                disk_bytes=resources.disk_bytes,
                pids=resources.pids,
            ),
            has_memory=snapshot.has_memory,
            memory_bytes=snapshot.memory_bytes,
            disk_bytes=snapshot.disk_bytes,
            created_at=snapshot.created_at,
            expires_at=snapshot.expires_at,
        )


class SnapshotSpace(Answer):
    """What a snapshot takes on the disk now. What is its own is free again when it is deleted; the rest it shares with
    its template, with sandboxes and with other snapshots.
    """

    own_bytes: int
    shared_bytes: int


class DiskChangeView(Answer):
    """A file, folder or link that differs; `change` is added, changed or removed."""

    path: str
    change: str
    type: str
    size: int


class SnapshotDiff(Answer):
    """What changed on the disk, in the order of paths. `truncated` says that there is more."""

    items: list[DiskChangeView]
    truncated: bool = False


class FileRestore(Request):
    """Put one file of a snapshot back into a running sandbox, at the path that it had."""

    snapshot: str
    path: str


class FileRestored(Answer):
    path: str
    size: int


class SnapshotPage(Answer):
    """One page of snapshots, newest first; `next` is the cursor of the following page, or null at the end."""

    items: list[SnapshotView]
    next: str | None
