"""A snapshot: a sandbox at one moment, as a disk or as disk and memory; usable wherever a template is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from atoll.model.resources import Resources


class SnapshotState(StrEnum):
    """`making` is on record before anything is taken; a server that dies in the middle removes it when it is back.

    `passing` is whole and is what forks are made from, while they are made: nobody sees it, and it goes with them.
    """

    MAKING = "making"
    PASSING = "passing"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known about one snapshot."""

    id: str
    name: str | None
    sandbox_id: str
    """The sandbox it was taken of, which may have ended since; empty for one that was imported."""
    template: str
    """The template that the sandbox came from."""
    resources: Resources
    has_memory: bool
    state: SnapshotState
    created_at: datetime
    expires_at: datetime | None = None
    memory_bytes: int = 0
    """What the memory takes on disk."""
    disk_bytes: int = 0
    """What the sandbox had written to its disk; shared with it, and with others that come from it."""

    def ready(self, memory_bytes: int, disk_bytes: int) -> Snapshot:
        return replace(self, state=SnapshotState.READY, memory_bytes=memory_bytes, disk_bytes=disk_bytes)


def beyond(snapshots: Sequence[Snapshot], keep_last: int) -> list[Snapshot]:
    """Those that a rule "keep the last so many" lets go: unnamed ones, oldest first; pure.

    A name is a promise that it stays until somebody removes it.
    """
    unnamed = sorted((one for one in snapshots if one.name is None), key=lambda one: one.created_at, reverse=True)
    return list(reversed(unnamed[keep_last:]))
