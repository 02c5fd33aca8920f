"""What a connection is, from its first bytes: TLS and for whom, HTTP, something else, or too early to say. Pure."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from enum import Enum

from atoll.model import limits
from atoll.model.errors import InvalidArgument
from atoll.model.policy import normal_name


class Kind(Enum):
    MORE = "more"  # not enough bytes yet
    TLS = "tls"
    HTTP = "http"
    HTTP2 = "http2"  # with prior knowledge, without TLS
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Sniffed:
    """What the first bytes are. `name` is the server name of a ClientHello; empty if it has none that is one."""

    kind: Kind
    name: str = ""
    protocols: tuple[str, ...] = ()
    strange: bool = False
    """MORE, but nothing that is common begins so: a client that pauses here may be waiting for an answer."""
    clear: bool = True
    """Not clear is TLS whose beginning is none that a client would send: a server may find a name where we do not."""


# Methods of which a server may take a line that names no version.
_METHODS = (
    *(b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"TRACE", b"PATCH"),
    *(b"PROPFIND", b"PROPPATCH", b"MKCOL", b"COPY", b"MOVE", b"LOCK", b"UNLOCK", b"REPORT", b"SEARCH", b"QUERY"),
)
# What lenient servers take for a space in a request's line, and skip before it.
_SPACE = b" \t\v\f\r"
_BLANK = _SPACE + b"\n"
_WORD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]*")
_REST = re.compile(rb"[^\x00-\x08\x0a\x0e-\x1f]*")
_VERSION = re.compile(b"[" + _SPACE + rb"]HTTP/\d", re.IGNORECASE)
_PREFACE = b"PRI * HTTP/2"
_ALERT_TO_DATA, _HANDSHAKE, _CLIENT_HELLO = range(20, 24), 22, 1
_SERVER_NAME, _ALPN = 0, 16
_NAMELESS = Sniffed(Kind.TLS)
_UNCLEAR = Sniffed(Kind.TLS, clear=False)


class _Short(Exception):
    """The bytes end in the middle."""


def sniff(data: bytes) -> Sniffed:
    """Decide as early as possible; MORE only while the bytes could still become TLS or HTTP.

    What is decided about a beginning holds for all that begins so: nobody gains by a pause in the middle.
    """
    if len(data) > limits.HELLO_BYTES_MAX:
        data = data[: limits.HELLO_BYTES_MAX]
    if not data:
        return Sniffed(Kind.MORE)
    if data[0] in _ALERT_TO_DATA:
        return _record(data)
    if data[0] & 0x80:
        return _old_hello(data)
    if data.startswith(_PREFACE):
        return Sniffed(Kind.HTTP2)
    return _http(data)


def _record(data: bytes) -> Sniffed:
    if len(data) < 2:
        return Sniffed(Kind.MORE)
    if data[1] != 3:
        return Sniffed(Kind.OTHER)
    return _tls(data) if data[0] == _HANDSHAKE else _UNCLEAR


def _old_hello(data: bytes) -> Sniffed:
    """A hello in the form of SSL 2 that asks for a later version, which servers still take. It names nobody."""
    if (len(data) < 3 or data[2] == _CLIENT_HELLO) and (len(data) < 4 or data[3] == 3):
        return _UNCLEAR if len(data) >= 4 else Sniffed(Kind.MORE, strange=True)
    return Sniffed(Kind.OTHER)


def _http(data: bytes) -> Sniffed:
    line = data.lstrip(_BLANK)
    end = _end_of(_WORD, line, 0)
    if end == len(line):
        is_common = _PREFACE.startswith(data) or any(method.startswith(line) for method in _METHODS)
        return _undecided(data, strange=not line or not is_common)
    if not end or line[end] not in _SPACE:
        return Sniffed(Kind.OTHER)
    if line[:end] in _METHODS:
        return _known(data, line[end:])
    line_end = _end_of(_REST, line, end)
    if _VERSION.search(line, end, line_end):
        return Sniffed(Kind.HTTP)
    return _undecided(data, strange=not _PREFACE.startswith(data)) if line_end == len(line) else Sniffed(Kind.OTHER)


def _end_of(pattern: re.Pattern[bytes], data: bytes, position: int) -> int:
    found = pattern.match(data, position)
    return found.end() if found else position


def _known(data: bytes, rest: bytes) -> Sniffed:
    """After a method that servers know: anything is a request, but the end of the line."""
    said = rest.lstrip(_SPACE)
    if not said:
        return _undecided(data, strange=False)
    return Sniffed(Kind.OTHER if said[:1] == b"\n" else Kind.HTTP)


def _undecided(data: bytes, *, strange: bool) -> Sniffed:
    """A line that may still be a request's. One that is longer than any other beginning is for a parser of requests."""
    if len(data) < limits.HELLO_BYTES_MAX:
        return Sniffed(Kind.MORE, strange=strange)
    return Sniffed(Kind.HTTP)


def _tls(data: bytes) -> Sniffed:
    try:
        hello = _hello(data)
    except _Short:
        return Sniffed(Kind.MORE) if len(data) < limits.HELLO_BYTES_MAX else _UNCLEAR
    except ValueError:
        return _UNCLEAR
    try:
        return _read_hello(hello)
    except (_Short, ValueError):
        return _UNCLEAR  # TLS for nobody: no name can be proven


def _hello(data: bytes) -> bytes:
    """The body of the ClientHello, put together from its records."""
    body = b""
    position = 0
    for _ in range(limits.HELLO_RECORDS_MAX):
        _begin(data, position)
        size = int.from_bytes(data[position + 3 : position + 5])
        body += data[position + 5 : position + 5 + size]
        if body and body[0] != _CLIENT_HELLO:
            raise ValueError("not a ClientHello")
        if len(body) >= 4:
            wanted = 4 + int.from_bytes(body[1:4])
            if wanted > limits.HELLO_BYTES_MAX:
                raise ValueError("a ClientHello of an impossible size")
            if len(body) >= wanted:
                return body[4:wanted]
        if position + 5 + size > len(data):
            raise _Short
        position += 5 + size
    raise ValueError("a ClientHello in crumbs")


def _begin(data: bytes, position: int) -> None:
    """Whether a record of a handshake begins here, as far as one can see."""
    head = data[position : position + 5]
    if head[:1] not in (b"", b"\x16") or head[1:2] not in (b"", b"\x03"):
        raise ValueError("not a handshake")
    if len(head) < 5:
        raise _Short
    if not 0 < int.from_bytes(head[3:]) <= limits.HELLO_BYTES_MAX:
        raise ValueError("a record of an impossible size")


def _read_hello(hello: bytes) -> Sniffed:
    position = 34  # after version and random
    for prefix in (1, 2, 1):  # session, cipher suites, compression
        position = _end(hello, position, prefix)
    if position == len(hello):
        return _NAMELESS
    end = _end(hello, position, 2)
    position += 2
    name = ""
    protocols: tuple[str, ...] = ()
    seen: set[int] = set()
    while position < end:
        kind = int.from_bytes(hello[position : position + 2])
        body, position = position + 4, _end(hello, position + 2, 2)
        if position > end:
            raise _Short
        if kind in seen:
            return _UNCLEAR  # two of a kind: the server might read the other one
        seen.add(kind)
        if kind == _SERVER_NAME:
            name = _server_name(hello[body:position])
        elif kind == _ALPN:
            protocols = _protocols(hello[body:position])
    return Sniffed(Kind.TLS, name, protocols)


def _end(data: bytes, position: int, prefix: int) -> int:
    """Where a vector ends that begins here with its size."""
    start = position + prefix
    end = start + int.from_bytes(data[position:start])
    if end > len(data) or start > len(data):
        raise _Short
    return end


def _server_name(body: bytes) -> str:
    names, rest = _vector(body, 2)
    kind, names = _take(names, 1)
    value, more = _vector(names, 2)
    if rest or more or kind != b"\0":
        raise ValueError("several names, or one of another kind")
    text = value.decode("ascii")
    try:
        return normal_name(text)
    except InvalidArgument:
        ipaddress.ip_address(text)  # which some clients send, and nobody takes for a name; else: a ValueError
        return ""


def _protocols(body: bytes) -> tuple[str, ...]:
    names, _ = _vector(body, 2)
    found: list[str] = []
    while names:
        value, names = _vector(names, 1)
        found.append(value.decode("latin-1"))
    return tuple(found)


def _take(data: bytes, size: int) -> tuple[bytes, bytes]:
    if len(data) < size:
        raise _Short
    return data[:size], data[size:]


def _vector(data: bytes, prefix: int) -> tuple[bytes, bytes]:
    head, rest = _take(data, prefix)
    return _take(rest, int.from_bytes(head))
