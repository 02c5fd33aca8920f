"""Which port of which sandbox a request is for, read from its host name or its headers; pure.

A `Pattern` looks at a request's head and names a target, or does not know it. Ours are `<port>-<id>.<domain>` and the
headers X-Atoll-Sandbox and X-Atoll-Port; others can stand beside them, each with the header that carries its token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atoll.model.errors import AtollError, InvalidArgument
from atoll.model.port import port_parse

Headers = Iterable[tuple[bytes, bytes]]

SANDBOX_HEADER = b"x-atoll-sandbox"
PORT_HEADER = b"x-atoll-port"
TOKEN_HEADER = b"x-atoll-token"
TUNNEL_PROTOCOL = b"atoll-tcp"


@dataclass(frozen=True, slots=True)
class Refusal:
    """How another vendor says no: a status and what is in its JSON."""

    status: int
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """A port of a sandbox, and what of the request is for us alone."""

    sandbox_id: str
    port: int
    token_header: bytes = TOKEN_HEADER
    own_headers: frozenset[bytes] = frozenset()
    """Headers that this way of asking needs; the server inside does not see them."""
    refusal: Callable[[AtollError], Refusal] | None = None
    """How the vendor whose way this is says no; without it what is wrong is a problem of ours."""
    refuses_its_own: bool = False
    """The way is ours too, so the vendor's no is only for sandboxes that were made through a façade."""


Pattern = Callable[[str, Headers], Target | None]


class Routes:
    """The patterns in the order in which they are asked."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self.patterns = tuple(patterns)

    @classmethod
    def native(cls, domain: str, *others: Pattern) -> Routes:
        """Our own patterns under a domain, and others after them."""
        return cls((by_header, host_pattern(domain), *others))

    def find(self, headers: Headers) -> Target | None:
        """The target of a request; None if it is one for the API. InvalidArgument if it names half a target."""
        host = host_of(headers)
        for pattern in self.patterns:
            target = pattern(host, headers)
            if target is not None:
                return target
        return None

    def claims(self, headers: Headers) -> bool:
        """Whether an upgrade in this request is passed on as bytes, and is no WebSocket of the API."""
        if any(name == b"upgrade" and value.lower() == TUNNEL_PROTOCOL for name, value in headers):
            return True
        try:
            return self.find(headers) is not None
        except InvalidArgument:
            return True  # the application says what is wrong with it


def host_of(headers: Headers) -> str:
    """The host name that was asked for, in lower case and without its port."""
    value = _value(headers, b"host").lower()
    return value if value.endswith("]") else re.sub(r":\d*$", "", value)


def host_pattern(domain: str) -> Pattern:
    """`<port>-<id>.<domain>`. What stands under the domain and looks otherwise is not ours."""
    shape = re.compile(rf"(\d{{1,5}})-([0-9a-z]{{1,63}})\.{re.escape(domain.lower())}\.?")

    def pattern(host: str, headers: Headers) -> Target | None:  # noqa: ARG001 - the name says it all
        match = shape.fullmatch(host)
        return Target(match[2], port_parse(match[1])) if match else None

    return pattern


def by_header(host: str, headers: Headers) -> Target | None:  # noqa: ARG001 - for any host name
    """X-Atoll-Sandbox and X-Atoll-Port, where no name leads here."""
    sandbox, port = _value(headers, SANDBOX_HEADER), _value(headers, PORT_HEADER)
    if not sandbox and not port:
        return None
    if not sandbox or not port:
        raise InvalidArgument("X-Atoll-Sandbox and X-Atoll-Port belong together", code="invalid_route")
    return Target(sandbox, port_parse(port))


def _value(headers: Headers, wanted: bytes) -> str:
    return next((value.decode("latin-1").strip() for name, value in headers if name == wanted), "")
