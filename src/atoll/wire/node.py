"""What control and a node say to each other, as values; and the port through which they say it.

A node makes sandboxes true on one machine. It knows nothing of owners, keys or deadlines; control knows nothing of
namespaces or disks. `NodePort` is the whole conversation: on one machine the composition root hands control the node's
object itself, and a remote node is the same port over a connection.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from socket import socket
from typing import Any, Protocol

from atoll.model.lifecycle import EndReason
from atoll.model.policy import Compiled
from atoll.model.resources import Resources
from atoll.model.template import Template
from atoll.model.usage import Sample
from atoll.model.volume import VolumeMount
from atoll.wire import guest
from atoll.wire.network import Ask, NetworkEvent, NetworkOrder, NetworkStatus, Tested, Trial
from atoll.wire.volumes import VolumePort


@dataclass(frozen=True, slots=True)
class SandboxOrder:
    """Make this sandbox exist."""

    sandbox_id: str
    template: str
    resources: Resources
    env: Mapping[str, str] = field(default_factory=dict)
    hostname: str = "sandbox"
    image: str = ""
    """The snapshot that it begins from, instead of its template's disk."""
    memory: bool = True
    """With the snapshot's memory, if it has one; else its disk boots afresh."""
    volumes: tuple[VolumeMount, ...] = ()
    """By id."""
    crowded: bool = False
    """Others wait for their creates too: what nobody can see yet may be done after the answer."""


@dataclass(frozen=True, slots=True)
class SandboxStarted:
    """It exists, and its guest has answered, or will have before anybody is let in.

    Where the time went is told step by step, in milliseconds.
    """

    sandbox_id: str
    steps_ms: Mapping[str, float]
    way: str = "boot"
    """How it came to be: `pool`, `shell`, `image` or `boot`, from the fastest to the slowest."""
    failed: tuple[str, ...] = ()
    """Faster ways that were tried before and failed."""


@dataclass(frozen=True, slots=True)
class DiskChange:
    """One difference between two disks; `change` is added, changed or removed."""

    path: str
    change: str
    type: str
    size: int


@dataclass(frozen=True, slots=True)
class DiskChanges:
    """What a comparison found; `truncated` says that there is more."""

    items: Sequence[DiskChange]
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes on disk that something has alone, which are free again without it, and that it shares with others."""

    own_bytes: int = 0
    shared_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ImageTaken:
    """A snapshot that is whole, and what it takes."""

    has_memory: bool
    memory_bytes: int
    disk_bytes: int


@dataclass(frozen=True, slots=True)
class ImageArrived:
    """A snapshot that came as a file and is whole, and what its file said about it."""

    template: str
    resources: Resources
    has_memory: bool
    memory_bytes: int
    disk_bytes: int


@dataclass(frozen=True, slots=True)
class SandboxDied:
    """It ended without having been asked to. `detail` is for its owner and holds nothing of the host."""

    sandbox_id: str
    reason: EndReason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class WarmCount:
    """What is ready of one template: sandboxes that live, and boxes that need only to be brought to life."""

    live: int
    shells: int


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """What a node has and how much of it is used."""

    sandboxes: int
    memory_total_bytes: int
    memory_available_bytes: int
    memory_promised_bytes: int
    disk_total_bytes: int
    disk_free_bytes: int
    warm: Mapping[str, WarmCount] = field(default_factory=dict)
    """For each template, the sandboxes that wait for an owner."""
    claims_failed: int = 0
    """Claims that failed after their answer, since the node began; their sandboxes came by a slower way."""
    warm_max: int = 0
    """How many of each may wait; with 0 there is no pool."""


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    """What a sandbox, with the runtime around it, had used at one moment, as the machine counts."""

    at_s: float
    cpu_s: float
    memory_bytes: int
    disk_bytes: int
    received_bytes: int
    sent_bytes: int
    processes: int | None = None
    """By the sandbox's own word of some seconds before."""


class GuestStream(Protocol):
    """One operation under way inside a sandbox: messages in, bytes out, with back-pressure both ways.

    An error that the guest reports is raised as ours; the last message is `guest.Ok` or `guest.End`.
    """

    def __aiter__(self) -> AsyncIterator[guest.Message]: ...

    async def send(self, payload: bytes | memoryview) -> None:
        """Bytes of an upload or of standard input, of any length."""
        ...

    async def send_control(self, value: dict[str, Any]) -> None:
        """Something to do for the guest while the stream is open: resize, signal, close_stdin."""
        ...

    async def commit(self) -> None:
        """An upload is complete: without this the guest forgets it."""
        ...


class NodePort(VolumePort, Protocol):
    """A node, as control sees it. Every method may raise an AtollError; none leaves half a sandbox behind."""

    async def templates(self) -> Sequence[Template]:
        """The templates that sandboxes can start from here."""
        ...

    async def sandbox_create(self, order: SandboxOrder) -> SandboxStarted:
        """Make it and wait for its guest. On an error, or when cancelled, nothing of it is left."""
        ...

    async def sandbox_destroy(self, sandbox_id: str) -> None:
        """End it and remove all of it. Idempotent: what is not there is already gone."""
        ...

    async def sample(self, sandbox_ids: Sequence[str]) -> Mapping[str, Sample]:
        """What sandboxes use; those that do not live here are left out. Totals count from when they got their owner."""
        ...

    def sandbox_ids(self) -> frozenset[str]:
        """All sandboxes that live here now, also those adopted after a restart."""
        ...

    def restarted(self) -> bool:
        """Whether the machine itself has started anew since a server last ran here: what is missing went with it."""
        ...

    async def wait_death(self) -> SandboxDied:
        """The next sandbox that ended by itself. Called by one task, again and again."""
        ...

    async def guest_call(self, sandbox_id: str, op: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """One question to the guest, one answer. NotFound (code sandbox_not_found) if it does not live here."""
        ...

    def guest_stream(
        self, sandbox_id: str, op: str, params: Mapping[str, Any]
    ) -> AbstractAsyncContextManager[GuestStream]:
        """An operation with a stream in either direction; leaving the context ends it."""
        ...

    async def sandbox_standby(self, sandbox_id: str) -> None:
        """All of it stands still, and its memory may go to swap."""
        ...

    async def sandbox_wake(self, sandbox_id: str) -> None:
        """It goes on after a standby. Idempotent."""
        ...

    async def sandbox_pause(self, sandbox_id: str, *, memory: bool) -> None:
        """Put it to sleep on disk, with its memory or without. On an error it goes on as it was."""
        ...

    async def sandbox_resume(self, order: SandboxOrder) -> SandboxStarted:
        """Wake what was paused, or with `order.image` what a snapshot holds instead. On an error it stays paused."""
        ...

    async def sandbox_rollback(self, order: SandboxOrder) -> SandboxStarted:
        """Replace a sandbox that lives by what `order.image` holds. On an error it goes on as it was."""
        ...

    def paused_ids(self) -> frozenset[str]:
        """All sandboxes that are paused here."""
        ...

    def paused_with_memory(self, sandbox_id: str) -> bool | None:
        """Whether one that is paused has its memory beside its disk; None if it is not, or cannot be read."""
        ...

    async def idle_s(self, sandbox_id: str, enough_s: float) -> float:
        """For how long there was no call, no output and no traffic in a sandbox; 0 while there is.

        The inside is asked only where it was still for `enough_s` as seen from outside.
        """
        ...

    async def image_take(self, sandbox_id: str, image_id: str, *, memory: bool, passing: bool = False) -> ImageTaken:
        """A snapshot of a sandbox that lives or is paused, under an id that the caller brings. The sandbox goes on.

        With `passing` the caller removes it soon, and at the next start in any case: it need not outlast this host.
        """
        ...

    async def image_remove(self, image_id: str) -> None:
        """Idempotent. Sandboxes that were made from it are not touched."""
        ...

    def image_ids(self) -> frozenset[str]:
        """The snapshots that are whole."""
        ...

    def image_export(
        self, image_id: str, template: str, resources: Resources, *, memory: bool
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """A snapshot as the bytes of one file, with its memory or without; leaving the context ends it."""
        ...

    async def image_import(self, image_id: str, chunks: AsyncIterator[bytes], *, memory: bool) -> ImageArrived:
        """A snapshot out of the bytes of a file, under an id that the caller brings. On an error nothing is left."""
        ...

    async def image_diff(self, before: str, after: str) -> DiskChanges:
        """What changed on the disk from one snapshot to another, or to what the disk of a sandbox is now."""
        ...

    async def image_space(self, image_id: str) -> Space:
        """What a snapshot takes now: with each one that it shares with and that goes, more of it is its own."""
        ...

    async def image_file_restore(self, image_id: str, sandbox_id: str, path: str) -> int:
        """Write one file of a snapshot into a running sandbox, where it was; says how many bytes that were."""
        ...

    async def volume_create(self, volume_id: str, quota_bytes: int, source: str = "") -> None:
        """A new volume, empty or a clone of `source`."""
        ...

    async def volume_remove(self, volume_id: str) -> None:
        """Idempotent."""
        ...

    async def volume_used_bytes(self, volume_id: str) -> int: ...

    def volume_ids(self) -> frozenset[str]:
        """All volumes, and all of their snapshots."""
        ...

    async def dial(self, sandbox_id: str, port: int) -> socket:
        """A connection to a port of the sandbox, not blocking; GuestFailed (port_closed) if nothing listens there."""
        ...

    def network_set(self, sandbox_id: str, order: NetworkOrder) -> None:
        """What a sandbox may reach from now on; also for one that is still to be made, or asleep."""
        ...

    async def network_tell(self, sandbox_id: str) -> None:
        """Have the inside know what it must of that; one that does not run hears it when it does."""
        ...

    def network_rules(self, sandbox_id: str) -> Compiled:
        """What holds for a sandbox at this moment, also while it sleeps; nothing is allowed for one that is unknown."""
        ...

    async def network_status(self, sandbox_id: str, after: int) -> NetworkStatus:
        """Counters, open questions, and what happened after the event of that number."""
        ...

    async def network_test(self, sandbox_id: str, trial: Trial) -> Tested:
        """What would happen to a connection, and to a request on it."""
        ...

    def network_answer(self, sandbox_id: str, ask_id: str, allowed: bool) -> Ask:
        """A person's word on a connection that waits for it; NotFound (ask_not_found) if it waits no more."""
        ...

    async def network_event(self) -> tuple[str, NetworkEvent]:
        """The next thing that any sandbox did on the network. Called by one task, again and again."""
        ...

    async def network_shut(self) -> list[tuple[str, NetworkEvent]]:
        """Cut what is open, let nothing out from now on, and give all that was not told yet: the server stops."""
        ...

    def sandbox_series(self, sandbox_id: str) -> Sequence[SeriesPoint]:
        """What it used over the last hour, oldest first; nothing of one that does not live here."""
        ...

    def status(self) -> NodeStatus: ...
