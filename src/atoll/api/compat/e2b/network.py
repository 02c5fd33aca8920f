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
_NAMES_NEED_ALL_DENIED: Final = (
    "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out "
    "to block all other traffic."
)
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
    denied = [_address(entry) for entry in settings.deny_out]
    for entry, address in zip(settings.deny_out, denied, strict=True):
        if address is None:
            raise InvalidArgument(f"invalid denied CIDR {entry[:80]}", code="invalid_policy")
    closed = allow_internet is False or ipaddress.IPv4Network(_EVERYWHERE) in denied
    if not closed and any(_address(entry) is None for entry in settings.allow_out):
        raise InvalidArgument(_NAMES_NEED_ALL_DENIED, code="invalid_policy")
    http = tuple(_rules(settings.rules or {}))
    allow = tuple(filter(None, map(_rule, settings.allow_out)))
    if closed:
        return Policy(mode=Mode.LISTED, allow=allow, http=http)
    # What is allowed is open anyway; it is kept to be shown as it was asked for.
    return Policy(mode=Mode.PUBLIC, allow=allow, deny=tuple(_denied(settings)), http=http)


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
    address = _address(entry)
    if address is None:
        return entry
    return f"{_written(address)}:*" if isinstance(address, ipaddress.IPv4Network) else ""


def _address(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """An address or a network; None for what is a name, or nothing."""
    try:
        return ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return None


def _network(entry: str) -> ipaddress.IPv4Network | None:
    """One that sandboxes can reach: they have no IPv6."""
    address = _address(entry)
    return address if isinstance(address, ipaddress.IPv4Network) else None


def _written(network: ipaddress.IPv4Network) -> str:
    """A network as people write it: a single address without its length."""
    return str(network).removesuffix("/32")


def _denied(settings: NetworkSettings) -> Iterable[str]:
    """The denied networks without what is allowed in them."""
    holes = [found for found in map(_network, settings.allow_out) if found is not None]
    left = [found for found in map(_network, settings.deny_out) if found is not None]
    for hole in holes:
        left = [part for found in left for part in _without(found, hole)]
    return [_written(found) for found in ipaddress.collapse_addresses(left)]


def _shown_denied(policy: Policy) -> Iterable[str]:
    """What was denied before what is allowed was taken out of it; to deny this again comes to the same."""
    holes = [found for found in map(_network, _shown_allowed(policy)) if found is not None]
    left = [found for found in map(_network, policy.deny) if found is not None]
    whole = ipaddress.collapse_addresses([*left, *holes])
    # A hole that closes nothing was allowed beside what was denied, not inside of it.
    return [_written(found) for found in whole if found in left or found not in holes]


def _shown_allowed(policy: Policy) -> list[str]:
    return [entry.removesuffix(":*") for entry in policy.allow]


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
    """A policy, and the rules of ports, in E2B's words: what is read can be changed and set again, as with E2B.

    So values of headers are shown, to whoever may set them: a policy comes without them to others.
    """
    policy = policy or Policy()
    shape: dict[str, Any] = {} if ports is None else {"allowPublicTraffic": ports.public}
    if ports is not None and ports.mask_host != MASK_DEFAULT:
        shape["maskRequestHost"] = ports.mask_host.replace("{port}", "${PORT}")
    if policy.mode is Mode.PUBLIC:
        shape["denyOut"] = list(_shown_denied(policy))
    else:
        shape["denyOut"] = [_EVERYWHERE]
    if policy.allow or policy.mode is not Mode.PUBLIC:
        shape["allowOut"] = _shown_allowed(policy)
    if policy.http:
        shape["rules"] = {rule.host: [{"transform": {"headers": _shown_headers(rule)}}] for rule in policy.http}
    return shape


def _shown_headers(rule: HttpRule) -> dict[str, str]:
    return {name: value.replace(_OUR_SECRET, _SECRET) for name, value in rule.set_headers.items()}


def internet_allowed(policy: Policy | None) -> bool:
    return policy is not None and policy.mode is Mode.PUBLIC


def ports_of(settings: NetworkSettings) -> PortAccess:
    """Who reaches the ports: with E2B whoever knows their names, unless a sandbox is made otherwise."""
    public = settings.allow_public_traffic is not False
    mask = settings.mask_request_host
    # In our spelling the port in a mask has no dollar sign.
    return PortAccess(public) if mask is None else PortAccess(public, mask.replace("${PORT}", "{port}"))
