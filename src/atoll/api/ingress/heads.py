"""Heads of requests and answers on their way through a port: what is ours is taken off, what binds is put right; pure.

Neither side sees what belongs to us: keys, tokens, our cookie, our headers. The server inside sees a Host that it
expects; a cookie that it sets cannot reach beyond its own host name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from email.utils import formatdate
from urllib.parse import parse_qsl

from atoll.api.ingress.routes import PORT_HEADER, SANDBOX_HEADER, Target
from atoll.wire import token as keys

Head = list[tuple[bytes, bytes]]

TOKEN_COOKIE = "atoll_port"  # noqa: S105 - its name
TOKEN_QUERY = "atoll_token"  # noqa: S105

_OWN_PREFIX = b"x-atoll-"
_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_FORWARDED = frozenset(
    {b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-port", b"x-forwarded-proto", b"x-real-ip"}
)


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a caller shows: a key or a token, and whether the token stood in the address."""

    key: str = ""
    token: str = ""
    in_query: bool = False


def credentials(headers: Iterable[tuple[bytes, bytes]], query: bytes, target: Target) -> Credentials:
    """The first that is given: in the header of the route, in the address, in our cookie; and an API key."""
    key = token = cookie = ""
    for name, value in headers:
        text = value.decode("latin-1").strip()
        if name == target.token_header:
            token = text
        elif name == b"cookie":
            cookie = cookie or dict(_cookies(text)).get(TOKEN_COOKIE, "")
        elif name in (b"x-api-key", b"authorization") and _is_own_key(text):
            key = _bare_key(text)
    asked = dict(parse_qsl(query.decode("latin-1"))).get(TOKEN_QUERY, "") if TOKEN_QUERY.encode() in query else ""
    return Credentials(key, token or asked or cookie, in_query=bool(asked and not token))


def query_without_token(query: bytes) -> bytes:
    """The query as it was, without our parameter; the rest is not touched, not even its encoding."""
    own = TOKEN_QUERY.encode() + b"="
    return b"&".join(part for part in query.split(b"&") if not part.startswith(own))


def request_head(
    headers: Iterable[tuple[bytes, bytes]],
    target: Target,
    *,
    mask: str,
    scheme: str,
    client: str,
    upgrade: bytes = b"",
) -> Head:
    """What the server inside gets. `mask` is its Host; with `upgrade` the connection becomes something else."""
    headers = [(name.lower(), value) for name, value in headers]
    dropped = _HOP | _FORWARDED | named_by_connection(headers) | {b"host", b"expect", SANDBOX_HEADER, PORT_HEADER}
    dropped |= target.own_headers | {target.token_header}
    asked = next((value for name, value in headers if name == b"host"), b"")
    host = mask.encode("ascii") or asked
    kept: Head = [(b"host", host)]
    for name, value in headers:
        if name in dropped or name.startswith(_OWN_PREFIX) or _is_twin(name, dropped):
            continue
        if name == b"cookie":
            value = _cookie_without_ours(value)
            if not value:
                continue
        elif name in (b"authorization", b"x-api-key") and _is_own_key(value.decode("latin-1").strip()):
            continue
        elif name == b"origin" and value.partition(b"://")[2] == asked:
            value = value.partition(b"://")[0] + b"://" + host  # the same origin inside as outside
        kept.append((name, value))
    kept += [(b"x-forwarded-host", asked), (b"x-forwarded-proto", scheme.encode("ascii"))]
    if client:
        kept.append((b"x-forwarded-for", client.encode("ascii")))
    kept += [(b"connection", b"upgrade"), (b"upgrade", upgrade)] if upgrade else [(b"connection", b"close")]
    return kept


def answer_head(headers: Iterable[tuple[bytes, bytes]], *, mask: str, has_body: bool = True) -> Head:
    """What the caller gets of an answer from inside. A length that does not count is not passed on."""
    headers = [(name.lower(), value) for name, value in headers]
    dropped = _HOP | named_by_connection(headers)
    if not has_body or any(name == b"transfer-encoding" for name, _ in headers):
        dropped |= {b"content-length"}
    kept: Head = []
    for name, value in headers:
        if name in dropped or name.startswith(_OWN_PREFIX) or name == b"x-request-id":
            continue
        if name == b"set-cookie":
            if value.lstrip().startswith(TOKEN_COOKIE.encode() + b"="):
                continue
            value = _cookie_of_host(value)
        elif name == b"location" and mask:
            value = _location_outside(value, mask.encode("ascii"))
        kept.append((name, value))
    return kept


def token_cookie(token: str, expires_s: int, *, secure: bool) -> bytes:
    """The cookie by which a browser that came with a signed address goes on without it."""
    tail = "; Secure" if secure else ""
    until = formatdate(expires_s, usegmt=True)
    return f"{TOKEN_COOKIE}={token}; Path=/; Expires={until}; HttpOnly; SameSite=Lax{tail}".encode("ascii")


def named_by_connection(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Headers that a Connection header declares to be for the next hop only."""
    found = {option.strip().lower() for name, value in headers if name == b"connection" for option in value.split(b",")}
    return frozenset(found - {b"close", b"keep-alive", b"upgrade", b"host", b"content-length"})


def _is_twin(name: bytes, dropped: frozenset[bytes]) -> bool:
    """Servers in the manner of CGI read `X_Forwarded_For` as `X-Forwarded-For`: it would pass for ours."""
    twin = name.replace(b"_", b"-")
    return twin != name and (twin in dropped or twin == b"content-length" or twin.startswith(_OWN_PREFIX))


def _is_own_key(text: str) -> bool:
    return keys.is_key(_bare_key(text))


def _bare_key(text: str) -> str:
    scheme, _, rest = text.partition(" ")
    return rest.strip() if scheme.lower() == "bearer" else text


def _cookies(text: str) -> list[tuple[str, str]]:
    parts = (part.strip().partition("=") for part in text.split(";"))
    return [(name, value) for name, equals, value in parts if equals]


def _cookie_without_ours(value: bytes) -> bytes:
    own = TOKEN_COOKIE.encode() + b"="
    return b"; ".join(part.strip() for part in value.split(b";") if not part.strip().startswith(own))


def _cookie_of_host(value: bytes) -> bytes:
    """Without a Domain: else one sandbox could plant cookies in the pages of another."""
    parts = value.split(b";")
    return b";".join(
        [parts[0], *(part for part in parts[1:] if part.strip().partition(b"=")[0].strip().lower() != b"domain")]
    )


def _location_outside(value: bytes, mask: bytes) -> bytes:
    """An absolute address of the masked host leads nowhere outside; the same path on this host does."""
    for scheme in (b"http://", b"https://"):
        start = scheme + mask
        if value.startswith(start) and value[len(start) : len(start) + 1] in (b"", b"/", b"?", b"#"):
            return b"/" + value[len(start) :].lstrip(b"/")  # two slashes would name another host
    return value
