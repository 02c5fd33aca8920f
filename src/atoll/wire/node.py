"""What control and a node say to each other, as values; and the port through which they say it.

A node makes sandboxes true on one machine. It knows nothing of owners, keys or deadlines; control knows nothing of
namespaces or disks. `NodePort` is the whole conversation: on one machine the composition root hands control the node's
object itself, and a remote node is the same port over a connection.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from atoll.model.lifecycle import EndReason
from atoll.model.resources import Resources
from atoll.model.template import Template
from atoll.wire import guest


@dataclass(frozen=True, slots=True)
class SandboxOrder:
    """Make this sandbox exist."""

    sandbox_id: str
    template: str
    resources: Resources
    env: Mapping[str, str] = field(default_factory=dict)
    hostname: str = "sandbox"


@dataclass(frozen=True, slots=True)
class SandboxStarted:
    """It exists and its guest has answered; where the time went, step by step, in milliseconds."""

    sandbox_id: str
    steps_ms: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SandboxDied:
    """It ended without having been asked to. `detail` is for its owner and holds nothing of the host."""

    sandbox_id: str
    reason: EndReason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """What a node has and how much of it is used."""

    sandboxes: int
    memory_total_bytes: int
    memory_available_bytes: int
    memory_promised_bytes: int
    disk_total_bytes: int
    disk_free_bytes: int


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


class NodePort(Protocol):
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

    def sandbox_ids(self) -> frozenset[str]:
        """All sandboxes that live here now, also those adopted after a restart."""
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

    def status(self) -> NodeStatus: ...
