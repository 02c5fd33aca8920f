"""The contract between a node and an isolation boundary: what a driver is asked, when, and what must hold.

A node makes the disk, the namespaces, the control group and the folder of a box, writes them into its journal, and only
then hands a `Bundle` to the driver. The driver makes the boundary and nothing else on the host. So whatever a driver
leaves behind when it fails is in the bundle's folder, in its control group or in its namespaces, and the node, which
owns those, can remove it.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from atoll.model.resources import Resources

Dial = Callable[[int], Awaitable[socket.socket]]


@dataclass(frozen=True, slots=True)
class Bind:
    """A folder of the host that is seen inside, read-only unless said otherwise."""

    source: Path
    target: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class Bundle:
    """All that a driver needs to make one box."""

    box_id: str
    folder: Path
    """For the driver's own files: configuration, logs, pid file. Exists, is empty, and goes with the box."""
    root: Path
    netns: str
    cgroup: str
    argv: tuple[str, ...]
    """The guest: process 1 of the box."""
    binds: tuple[Bind, ...]
    resources: Resources
    hostname: str
    guest_port: int
    dial: Dial = field(compare=False)
    """Opens a connection to a port of the box from its outer namespace."""


@dataclass(frozen=True, slots=True)
class BoxRecord:
    """What the journal keeps about a live box, so that it can be found again: a pid alone is reused by the kernel."""

    pid: int
    pid_started: int
    """Start time of the process in clock ticks since boot (field 22 of /proc/pid/stat)."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What this driver can do on this host; `problem` says why it cannot be used at all, or is empty."""

    version: str = ""
    snapshots: bool = False
    pause: bool = False
    problem: str = ""


class Seen(Protocol):
    """A look at the files of a snapshot that is under way: are they what was written? Both waits raise if not."""

    async def but(self, bulk: str) -> None:
        """Returns when all but this one were looked at: a runtime parses those, and only loads this."""
        ...

    async def whole(self) -> None:
        """Returns when all were looked at."""
        ...


class Box(Protocol):
    """One boundary. Methods are called by one task at a time, but `destroy` may come at any moment."""

    box_id: str

    @property
    def bulk(self) -> str:
        """The file of a snapshot that holds most of it, and is written from its beginning to its end, never twice in a
        place; so it can be taken away while it is written. Before its first byte the runtime has written to the box's
        disk for the last time. Empty if there is none.
        """
        ...

    @property
    def late_root(self) -> bool:
        """Whether `root_change` can be asked of it."""
        ...

    async def root_change(self, root: Path) -> None:
        """Between `create` and `restore`: another root than the bundle's, with the same binds. After an error the box
        is of no more use.
        """
        ...

    async def start(self) -> None:
        """Called once after `create`: process 1 begins. Returns when it was started, not when it answers."""
        ...

    async def connect_guest(self) -> socket.socket:
        """Called for every operation: a connected, non-blocking socket to the guest."""
        ...

    async def pause(self) -> None:
        """All of the box stands still; nothing is lost. Idempotent, also after a kill -9 in the middle of it."""
        ...

    async def resume(self) -> None:
        """It goes on. Idempotent as `pause` is."""
        ...

    async def snapshot(self, target: Path, bulk_fd: int | None = None) -> None:
        """Memory and processes into the empty folder `target`. The box goes on as it was, paused or running.

        With `bulk_fd` the file `bulk` goes there instead.
        """
        ...

    async def restore(self, source: Path, seen: Seen | None = None) -> None:
        """Instead of `start`: the box becomes what `snapshot` saved. Disk and mounts must match the snapshot's.

        With `seen` the files are still being looked at: no program of the box runs before all of them were.
        """
        ...

    def console(self) -> str:
        """What process 1 has written to its standard output and error since `start`, as far as it is known; bounded."""
        ...

    async def wait_exited(self) -> None:
        """Returns when the boundary has ended, for whatever reason, also if that was before the call."""
        ...

    def alive(self) -> bool:
        """Whether the boundary has not ended, as far as can be told at once."""
        ...

    def kill(self) -> None:
        """Send it the signal that ends it, without waiting. Idempotent; `destroy` must still follow."""
        ...

    async def destroy(self) -> None:
        """End it and free all that the driver made. Idempotent, and legal in every state, also half made."""
        ...

    def record(self) -> BoxRecord:
        """For the journal; asked once, after `create`."""
        ...


class Driver(Protocol):
    """An isolation boundary on this host."""

    name: str

    async def probe(self) -> Capabilities:
        """Called at start and by `atoll doctor`: what works here, and if nothing does, why."""
        ...

    async def create(self, bundle: Bundle) -> Box:
        """Make the boundary; nothing runs in it yet. On an error or a cancel the node calls `discard`."""
        ...

    async def adopt(self, bundle: Bundle, record: BoxRecord) -> Box | None:
        """After a restart of the node: the same box again, or None if it is no longer alive."""
        ...

    async def discard(self, box_id: str, folder: Path) -> None:
        """Remove what may be left of a box of which only the name is known. Idempotent."""
        ...
