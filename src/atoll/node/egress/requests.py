"""Requests judged: whom they are for, what they ask, and how they go on; the same for HTTP/1.1 and HTTP/2."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import IPv4Address

from atoll.model.errors import InvalidArgument
from atoll.model.policy import normal_name, request_refusal
from atoll.node.egress.channel import Channel
from atoll.node.egress.gate import Gate
from atoll.node.egress.inject import Headers, Rewritten, rewrite

STATUS = {"host_mismatch": 421, "bad_request": 400}
"""Statuses of refusals; 403 for all others."""


@dataclass(frozen=True, slots=True)
class Site:
    """What a connection was opened to, and how the other end is reached."""

    name: str
    address: IPv4Address
    port: int
    tls: bool
    connect: Callable[[], Awaitable[Channel]]

    @property
    def authorities(self) -> frozenset[str]:
        host = self.name or str(self.address)
        default = 443 if self.tls else 80
        return frozenset({f"{host}:{self.port}", *((host,) if self.port == default else ())})


@dataclass(frozen=True, slots=True)
class Asked:
    """A request's head as it was understood. `hosts` is every place in it that names a host."""

    method: bytes
    target: bytes
    hosts: list[bytes]
    headers: Headers


def judge(gate: Gate, site: Site, asked: Asked) -> tuple[str, Rewritten | None]:
    """Why a request is refused, or its head as it goes on, with secrets put in where they belong."""
    method, target = asked.method.decode("latin-1"), asked.target.decode("latin-1")
    if method == "CONNECT" or not (target.startswith("/") or (target == "*" and method == "OPTIONS")):
        return "bad_request", None
    if not asked.hosts or any(authority(value) not in site.authorities for value in asked.hosts):
        return "host_mismatch", None
    place = {"name": site.name, "address": str(site.address), "port": site.port}
    rules = gate.order.rules.http_rules(site.name) if site.name else []
    refusal = request_refusal(rules, method, target)
    if refusal:
        gate.note("connection", **place, reason=refusal, request=f"{method} {target.partition('?')[0][:200]}")
        return refusal, None
    matched = [rule for rule in rules if not request_refusal([rule], method, target)]
    bound = gate.grants_for(site.name, site.port) if site.tls else []
    others = [grant for grant in gate.order.grants if grant not in bound]
    rewritten = rewrite(asked.target, asked.headers, matched, bound, others)
    for name in rewritten.used:
        gate.note("secret_used", **place, secret=name, allowed=True)
    for name in rewritten.strayed:
        gate.note("secret_strayed", **place, secret=name)
    return "", rewritten


def authority(value: bytes) -> str:
    """A host, and its port if there is one, as they are compared; empty for what is neither name nor address."""
    name, colon, port = value.decode("latin-1").partition(":")
    try:
        IPv4Address(name)
    except ValueError:
        try:
            normal = normal_name(name)
        except InvalidArgument:
            return ""
        if name.lower() not in (normal, f"{normal}."):
            return ""  # the same only after a change that the server may not make: what goes on is what was said
        name = normal
    return f"{name}:{port}" if colon else name


def words(reason: str) -> bytes:
    """What a client is told, in words that a program's log will show."""
    return f"atoll: this request is not allowed by the sandbox's policy ({reason})\n".encode("ascii")
