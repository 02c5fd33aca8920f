"""Requests judged: whom they are for, what they ask, and how they go on; the same for HTTP/1.1 and HTTP/2."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any

from atoll.model.errors import InvalidArgument
from atoll.model.policy import normal_name, request_refusal
from atoll.node.egress.channel import Channel
from atoll.node.egress.gate import Gate
from atoll.node.egress.inject import Headers, Rewritten, rewrite

_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}")  # those that servers know have sixteen letters at most
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
    strange: bool = False
    """Whether it is none that a client says here, whatever it asks."""


def judge(gate: Gate, site: Site, asked: Asked) -> tuple[str, Rewritten | None]:
    """Why a request is refused, or its head as it goes on, with secrets put in where they belong."""
    method, target = asked.method.decode("latin-1"), asked.target.decode("latin-1")
    rules = gate.order.rules.http_rules(site.name) if site.name else []
    refusal = _refusal(site, asked) or request_refusal(rules, method, target)
    if refusal:
        note_refused(gate, site, method, target, refusal)
        return refusal, None
    place = _place(site)
    matched = [rule for rule in rules if not request_refusal([rule], method, target)]
    bound = gate.grants_for(site.name, site.port) if site.tls else []
    others = [grant for grant in gate.order.grants if grant not in bound]
    rewritten = rewrite(asked.target, asked.headers, matched, bound, others)
    for name in rewritten.used:
        gate.note("secret_used", **place, secret=name, allowed=True)
    for name in rewritten.strayed:
        gate.note("secret_strayed", **place, secret=name)
    return "", rewritten


def _refusal(site: Site, asked: Asked) -> str:
    """Why a request is refused whatever the rules are."""
    method, target = asked.method, asked.target
    if asked.strange or _METHOD.fullmatch(method) is None or method == b"CONNECT":
        return "bad_request"
    if not (target.startswith(b"/") or (target == b"*" and method == b"OPTIONS")):
        return "bad_request"
    if not asked.hosts or any(authority(value) not in site.authorities for value in asked.hosts):
        return "host_mismatch"
    return ""


def note_refused(gate: Gate, site: Site, method: str, target: str, reason: str) -> None:
    """Tell that a request was refused, without what may be secret or long in it."""
    gate.note("connection", **_place(site), reason=reason, request=f"{method[:32]} {target.partition('?')[0][:200]}")


def _place(site: Site) -> dict[str, Any]:
    return {"name": site.name, "address": str(site.address), "port": site.port}


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
