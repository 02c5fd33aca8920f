"""What control and a node say to each other about the network of a sandbox, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from atoll.model.policy import NOTHING, Compiled
from atoll.model.secret import Grant


@dataclass(frozen=True, slots=True)
class NetworkOrder:
    """What a sandbox may reach from now on, and the secrets that go with its requests."""

    rules: Compiled = NOTHING
    grants: tuple[Grant, ...] = ()
    owner: str = ""
    """Whose it is: what all sandboxes share is shared out among owners."""

    @property
    def looks_inside(self) -> bool:
        """Whether TLS may have to end at the proxy, so that the sandbox must trust its authority."""
        return bool(self.grants or self.rules.http or self.rules.policy.inspect)


@dataclass(frozen=True, slots=True)
class NetworkEvent:
    """Something that a sandbox did, or tried, on the network.

    `kind` is "connection" (at its end, with the bytes, or at once if refused), "lookup" (of a name, if refused), "ask",
    "secret_used", "secret_strayed" (a placeholder went where its secret does not belong) or "limit" (more of a kind
    happened than the audit log is told in one minute, or some was lost because the log was behind: `reason` says which,
    and `dropped` how many, as soon as that is known).
    """

    number: int
    at: datetime
    kind: str
    name: str = ""
    address: str = ""
    port: int = 0
    protocol: str = ""
    allowed: bool = False
    reason: str = ""
    rule: str = ""
    secret: str = ""
    request: str = ""
    bytes_up: int = 0
    bytes_down: int = 0
    duration_s: float = 0.0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Ask:
    """A connection that waits for a person's word."""

    id: str
    host: str
    port: int
    asked_at: datetime


@dataclass(frozen=True, slots=True)
class NetworkStatus:
    """How much a sandbox has moved, and what it waits for."""

    bytes_up: int = 0
    bytes_down: int = 0
    connections_open: int = 0
    connections_total: int = 0
    refused_total: int = 0
    packets_dropped: int = 0
    """By the kernel, since the sandbox last woke: neither TCP nor a question to DNS, or too many."""
    asks: tuple[Ask, ...] = ()
    events: tuple[NetworkEvent, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Trial:
    """A connection to be judged without being made; with a path also a request on it."""

    host: str
    port: int
    method: str = "GET"
    path: str = ""
    plain: bool = False
    """Whether it is without TLS for sure, so that no secret goes along."""


@dataclass(frozen=True, slots=True)
class Tested:
    """What would happen to a connection, and why."""

    allowed: bool
    reason: str
    rule: str
    addresses: tuple[str, ...]
    looked_inside: bool
    secrets: tuple[str, ...] = ()
