"""E2B's network settings as our policy, and back; pure.

With E2B a sandbox reaches the whole internet unless it is made otherwise, and what is allowed wins over what is denied.
Ours reaches nothing unless it is made otherwise, and what is denied wins. Private addresses stay closed in any case.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from atoll.model.errors import InvalidArgument
from atoll.model.policy import HttpRule, Mode, Policy
from atoll.model.port import MASK_DEFAULT, PortAccess

_EVERYWHERE: Final = "0.0.0.0/0"
_PLACEHOLDER: Final = "${e2b."
_SECRET: Final = "${e2b.secrets."  # noqa: S105 - what a reference begins with, not a secret
_OUR_SECRET: Final = "${secrets."  # noqa: S105


class Transform(msgspec.Struct):
    headers: dict[str, str] = {}


class HostRule(msgspec.Struct):
    transform: Transform | None = None


class NetworkSettings(msgspec.Struct, rename="camel"):
    """The network of a create, and the body of a change."""

    allow_public_traffic: bool | None = None
    allow_out: list[str] = []
    deny_out: list[str] = []
    dns_servers: list[str] = []
    egress_proxy: dict[str, Any] | None = None
    mask_request_host: str | None = None
    https_ports: list[int] = []
    rules: dict[str, list[HostRule]] | None = None
    allow_internet_access: bool | None = msgspec.field(default=None, name="allow_internet_access")


def policy_of(settings: NetworkSettings, allow_internet: bool | None) -> Policy:
    """What a sandbox may reach under these settings; InvalidArgument for what cannot be kept."""
    _check_possible(settings)
    closed = allow_internet is False or any(entry in (_EVERYWHERE, "::/0") for entry in settings.deny_out)
    http = tuple(_rules(settings.rules or {}))
    if closed:
        return Policy(mode=Mode.LISTED, allow=tuple(filter(None, map(_rule, settings.allow_out))), http=http)
    if any(_network(entry) is None for entry in settings.deny_out):
        raise InvalidArgument("deny_out takes addresses and networks, not names", code="invalid_policy")
    return Policy(mode=Mode.PUBLIC, deny=tuple(_denied(settings)), http=http)


def _check_possible(settings: NetworkSettings) -> None:
    refused = {
        "egress_proxy": settings.egress_proxy,
        "dns_servers": settings.dns_servers,
        "https_ports": settings.https_ports,
    }
    for name, value in refused.items():
        if value:
            raise InvalidArgument(f"network.{name}: this server does not have that", code="not_supported")


def _rule(entry: str) -> str:
    """One allowed place in our spelling; addresses of IPv6 are left out, because a sandbox has none."""
    if ":" in entry and entry.count(":") > 1:
        return ""
    return f"{entry}:*" if _network(entry) is not None and ":" not in entry else entry


def _network(entry: str) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(entry, strict=False)
    except ValueError:
        return None


def _denied(settings: NetworkSettings) -> Iterable[str]:
    """The denied networks without what is allowed in them."""
    holes = [found for found in map(_network, settings.allow_out) if found is not None]
    left = [found for found in map(_network, settings.deny_out) if found is not None]
    for hole in holes:
        left = [part for found in left for part in _without(found, hole)]
    return [str(found) for found in ipaddress.collapse_addresses(left)]


def _without(found: ipaddress.IPv4Network, hole: ipaddress.IPv4Network) -> Iterable[ipaddress.IPv4Network]:
    if found.subnet_of(hole):
        return []
    return found.address_exclude(hole) if hole.subnet_of(found) else [found]


def _rules(rules: Mapping[str, list[HostRule]]) -> Iterable[HttpRule]:
    for host, entries in rules.items():
        headers: dict[str, str] = {}
        for entry in entries:
            headers |= entry.transform.headers if entry.transform is not None else {}
        headers = {name: value.replace(_SECRET, _OUR_SECRET) for name, value in headers.items()}
        if any(_PLACEHOLDER in value for value in headers.values()):
            raise InvalidArgument("identity tokens in headers: this server does not have that", code="not_supported")
        if headers:
            yield HttpRule(host, set_headers=headers)


def shape_of(policy: Policy | None, ports: PortAccess | None = None) -> dict[str, Any]:
    """A policy, and the rules of ports, in E2B's words. Values of headers are not shown: they may be secrets."""
    policy = policy or Policy()
    shape: dict[str, Any] = {} if ports is None else {"allowPublicTraffic": ports.public}
    if ports is not None and ports.mask_host != MASK_DEFAULT:
        shape["maskRequestHost"] = ports.mask_host.replace("{port}", "${PORT}")
    if policy.mode is Mode.PUBLIC:
        shape["denyOut"] = list(policy.deny)
    else:
        shape["denyOut"] = [_EVERYWHERE]
        shape["allowOut"] = [entry.removesuffix(":*") for entry in policy.allow]
    if policy.http:
        shape["rules"] = {
            rule.host: [{"transform": {"headers": dict.fromkeys(rule.set_headers, "")}}] for rule in policy.http
        }
    return shape


def internet_allowed(policy: Policy | None) -> bool:
    return policy is not None and policy.mode is Mode.PUBLIC


def ports_of(settings: NetworkSettings) -> PortAccess:
    """Who reaches the ports: with E2B whoever knows their names, unless a sandbox is made otherwise."""
    public = settings.allow_public_traffic is not False
    mask = settings.mask_request_host
    # In our spelling the port in a mask has no dollar sign.
    return PortAccess(public) if mask is None else PortAccess(public, mask.replace("${PORT}", "{port}"))
