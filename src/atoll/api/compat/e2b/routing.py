"""Which of E2B's three servers a request is for: the control plane, a sandbox's agent, or its code interpreter; pure.

E2B's clients name a sandbox in the host (`49983-<id>.<domain>`) or, with one address for all, in headers. The agent and
the interpreter are ports inside a sandbox for them; here both are answered by this server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from atoll.api.compat.e2b import proxywords
from atoll.api.compat.e2b.proxywords import TRAFFIC_HEADER
from atoll.api.facade import RequestHead
from atoll.api.ingress.routes import Pattern, Target
from atoll.model.port import port_parse

AGENT_PORT = 49983
INTERPRETER_PORT = 49999
SANDBOX_HEADER = b"e2b-sandbox-id"
PORT_HEADER = b"e2b-sandbox-port"

_CONTROL_PATH = re.compile(
    r"/(?:v2/|v3/)?(?:sandboxes|templates|snapshots|volumes|volumecontent|secrets|teams|events|default-templates)(?:/.*)?"
)
_NAME = re.compile(r"(\d{1,5})-([0-9a-z]{1,63})")
_MAP = re.compile(r"/e2b/([^/]{1,2000})(?=/)")
_BARE_PATHS = ("/files",)
_OURS = ("/v1/", "/openapi.json")


class Plane(Enum):
    """The servers that E2B's clients believe to talk to."""

    CONTROL = "control"
    AGENT = "agent"
    INTERPRETER = "interpreter"


@dataclass(frozen=True, slots=True)
class Route:
    """A server, and for two of them the sandbox; without one it is found by the signature of the address."""

    plane: Plane
    sandbox_id: str = ""
    templates: Mapping[str, str] = field(default_factory=dict)
    """Names of templates that the caller's address maps to others."""


def route(head: RequestHead, domain: str) -> Route | None:
    """Where a request goes; None if it is not for E2B's servers, or for a port of a sandbox."""
    named = _by_headers(head) or _by_host(head.host, domain)
    if named is not None:
        sandbox_id, port = named
        planes = {AGENT_PORT: Plane.AGENT, INTERPRETER_PORT: Plane.INTERPRETER}
        return Route(planes[port], sandbox_id) if port in planes else None
    if head.header(b"x-atoll-sandbox"):
        return None
    if (head.host == f"api.{domain}" and not head.path.startswith(_OURS)) or _CONTROL_PATH.fullmatch(
        without_map(head.path)
    ):
        return Route(Plane.CONTROL, templates=map_in(head.path))
    return Route(Plane.AGENT) if head.path in _BARE_PATHS else None


def map_in(path: str) -> dict[str, str]:
    """What an address such as `/e2b/desktop=code,mine=base` maps; a client puts its paths behind it."""
    match = _MAP.match(path)
    pairs = (pair.partition("=") for pair in match[1].split(",")) if match else ()
    return {name: ours for name, _, ours in pairs if name and ours}


def without_map(path: str) -> str:
    """A path as if the address in front of it had no map."""
    match = _MAP.match(path)
    return path[match.end() :] if match else path


def _by_headers(head: RequestHead) -> tuple[str, int] | None:
    sandbox_id = head.header(SANDBOX_HEADER)
    if not sandbox_id:
        return None
    port = head.header(PORT_HEADER) or str(AGENT_PORT)
    return sandbox_id, int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else 0


def _by_host(host: str, domain: str) -> tuple[str, int] | None:
    name, dot, rest = host.rstrip(".").partition(".")
    match = _NAME.fullmatch(name) if dot and rest == domain.lower() else None
    return (match[2], int(match[1])) if match else None


def port_pattern(host: str, headers: Iterable[tuple[bytes, bytes]]) -> Target | None:  # noqa: ARG001 - for any host
    """A port of a sandbox that is named in E2B's headers."""
    found = {name: value.decode("latin-1").strip() for name, value in headers if name in (SANDBOX_HEADER, PORT_HEADER)}
    if len(found) < 2:
        return None
    port = port_parse(found[PORT_HEADER])
    if port in (AGENT_PORT, INTERPRETER_PORT):
        return None
    return _target(found[SANDBOX_HEADER], port, SANDBOX_HEADER, PORT_HEADER)


def _target(sandbox_id: str, port: int, *headers: bytes) -> Target:
    own = frozenset({TRAFFIC_HEADER, *headers})
    return Target(sandbox_id, port, TRAFFIC_HEADER, own, partial(proxywords.of_port, sandbox_id=sandbox_id, port=port))


def host_pattern(domain: str) -> Pattern:
    """`<port>-<id>.<domain>`, with E2B's header for private ports or without: then it is a port like any other.

    The name is ours as well, so only a sandbox that E2B's clients have made is refused in E2B's words.
    """

    def pattern(host: str, headers: Iterable[tuple[bytes, bytes]]) -> Target | None:
        named = _by_host(host, domain)
        if named is None:
            return None
        sandbox_id, port = named[0], port_parse(str(named[1]))
        if any(name == TRAFFIC_HEADER for name, _ in headers):
            return _target(sandbox_id, port)
        refusal = partial(proxywords.of_port, sandbox_id=sandbox_id, port=port)
        return Target(sandbox_id, port, refusal=refusal, refuses_its_own=True)

    return pattern
