"""Bodies about networks: what a sandbox may reach, what it did there, and what it waits for."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from atoll.model import limits
from atoll.model.policy import Compiled, HttpRule, Mode, Policy
from atoll.wire.network import NetworkEvent, NetworkStatus, Tested
from atoll.wire.public.base import Answer, Request


class HttpRuleBody(Request):
    """What may be asked of a host. Where a host has rules, a request must match one; its headers are changed by it."""

    host: str
    methods: list[str] = []
    path_prefixes: list[str] = []
    set_headers: dict[str, str] = {}
    remove_headers: list[str] = []

    def rule(self) -> HttpRule:
        return HttpRule(
            host=self.host,
            methods=tuple(self.methods),
            path_prefixes=tuple(self.path_prefixes),
            set_headers=self.set_headers,
            remove_headers=tuple(self.remove_headers),
        )


class PolicyBody(Request):
    """What a sandbox may reach. Rules are names, `*.suffix`, addresses, networks or `@lists`, with ports after a colon.

    `mode` is `nothing`, `listed` (only what `allow` names; an empty list is nothing) or `public`. With `ask`, what no
    rule names waits up to `ask_s` for a person's word. `inspect` ends all TLS at the proxy, so that the host in each
    request is checked too.
    """

    mode: Mode = Mode.LISTED
    allow: list[str] = []
    deny: list[str] = []
    http: list[HttpRuleBody] = []
    ask: bool = False
    ask_s: float = 60.0
    inspect: bool = False
    bytes_max: int | None = None
    rate_bytes_per_s: int | None = None
    connections_max: int = limits.EGRESS_CONNECTIONS_DEFAULT

    def policy(self) -> Policy:
        return Policy(
            mode=self.mode,
            allow=tuple(self.allow),
            deny=tuple(self.deny),
            http=tuple(rule.rule() for rule in self.http),
            ask=self.ask,
            ask_s=self.ask_s,
            inspect=self.inspect,
            bytes_max=self.bytes_max,
            rate_bytes_per_s=self.rate_bytes_per_s,
            connections_max=self.connections_max,
        )


class HttpRuleView(Answer):
    host: str
    methods: list[str]
    path_prefixes: list[str]
    set_headers: dict[str, str]
    remove_headers: list[str]


class EnforcedView(Answer):
    """What the proxy holds a sandbox to at this moment: lists are put in, and every rule says its ports."""

    mode: str
    allow: list[str]
    deny: list[str]


class PolicyView(Answer):
    """The policy that is in force, as it was written and as it is enforced, and the secrets that the sandbox has."""

    mode: str
    allow: list[str]
    deny: list[str]
    http: list[HttpRuleView]
    ask: bool
    ask_s: float
    inspect: bool
    bytes_max: int | None
    rate_bytes_per_s: int | None
    connections_max: int
    secrets: list[str]
    enforced: EnforcedView

    @classmethod
    def of(cls, policy: Policy, secrets: tuple[str, ...], enforced: Compiled) -> PolicyView:
        held = EnforcedView(
            mode=enforced.policy.mode,
            allow=[rule.written for rule in enforced.allow],
            deny=[rule.written for rule in enforced.deny],
        )
        return msgspec.convert({**msgspec.to_builtins(policy), "secrets": list(secrets), "enforced": held}, cls)


class SandboxSecrets(Request):
    """The names of the secrets that a sandbox has from now on."""

    secrets: list[str]


class PolicyTest(Request):
    """What to try: a request, `https://example.org/x` with its method, or a connection, `example.org:22`."""

    url: str
    method: str = "GET"


class PolicyTested(Answer):
    """What would happen, by which rule, and whether requests would be looked at; `would_ask` waits for a person."""

    allowed: bool
    reason: str
    rule: str
    addresses: list[str]
    looked_inside: bool
    secrets: list[str]

    @classmethod
    def of(cls, tested: Tested) -> PolicyTested:
        return msgspec.convert(msgspec.to_builtins(tested), cls)


class AskView(Answer):
    """A connection that waits for a person's word."""

    id: str
    host: str
    port: int
    asked_at: datetime


class AskAnswer(Request):
    """`once` lets this connection through, `always` also puts the place on the policy's list, `refuse` ends it."""

    answer: Literal["once", "always", "refuse"]


class NetworkEventView(Answer):
    """Something that a sandbox did, or tried, on the network."""

    number: int
    at: datetime
    kind: str
    name: str
    address: str
    port: int
    protocol: str
    allowed: bool
    reason: str
    rule: str
    secret: str
    request: str
    bytes_up: int
    bytes_down: int
    duration_s: float
    dropped: int

    @classmethod
    def of(cls, event: NetworkEvent) -> NetworkEventView:
        return cls(**{name: getattr(event, name) for name in cls.__struct_fields__})


class NetworkView(Answer):
    """Counters, open questions, and the latest events of a sandbox's network."""

    bytes_up: int
    bytes_down: int
    connections_open: int
    connections_total: int
    refused_total: int
    asks: list[AskView]
    events: list[NetworkEventView]
    packets_dropped: int = 0

    @classmethod
    def of(cls, status: NetworkStatus) -> NetworkView:
        return cls(
            bytes_up=status.bytes_up,
            bytes_down=status.bytes_down,
            connections_open=status.connections_open,
            connections_total=status.connections_total,
            refused_total=status.refused_total,
            packets_dropped=status.packets_dropped,
            asks=[AskView(id=a.id, host=a.host, port=a.port, asked_at=a.asked_at) for a in status.asks],
            events=[NetworkEventView.of(event) for event in status.events],
        )


class EgressLists(Answer):
    """The lists of hosts that policies may refer to, by name."""

    lists: dict[str, list[str]]
