"""What a connection is, from its first bytes: TLS and for whom, HTTP, something else, or too early to say. Pure."""

from __future__ import annotations

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


_METHODS = (
    *(b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH"),
    *(b"PROPFIND", b"PROPPATCH", b"MKCOL", b"COPY", b"MOVE", b"LOCK", b"UNLOCK", b"REPORT", b"SEARCH", b"QUERY"),
)
_REQUEST_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32} +[^ \r\n]+ +HTTP/\d")
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HANDSHAKE, _CLIENT_HELLO = 22, 1
_SERVER_NAME, _ALPN = 0, 16


class _Short(Exception):
    """The bytes end in the middle."""


def sniff(data: bytes) -> Sniffed:
    """Decide as early as possible; MORE only while the bytes could still become TLS or HTTP."""
    if not data:
        return Sniffed(Kind.MORE)
    if data[0] == _HANDSHAKE and (len(data) < 2 or data[1] == 3):
        return _tls(data)
    if data.startswith(_PREFACE[: len(data)]) and len(data) < 4:
        return Sniffed(Kind.MORE)
    if data.startswith(_PREFACE[:5]):
        return Sniffed(Kind.HTTP2)
    return _http(data)


def _http(data: bytes) -> Sniffed:
    line = data.partition(b"\n")[0]
    word = line.partition(b" ")[0]
    if b" " not in line:
        is_start = any(method.startswith(word) for method in _METHODS)
        return Sniffed(Kind.MORE if is_start and b"\n" not in data else Kind.OTHER)
    if word in _METHODS or _REQUEST_LINE.match(line):
        return Sniffed(Kind.HTTP)
    return Sniffed(Kind.OTHER)


def _tls(data: bytes) -> Sniffed:
    try:
        hello = _hello(data)
    except _Short:
        return Sniffed(Kind.MORE if len(data) < limits.HELLO_BYTES_MAX else Kind.OTHER)
    except ValueError:
        return Sniffed(Kind.OTHER)
    try:
        return _read_hello(hello)
    except (_Short, ValueError):
        return Sniffed(Kind.TLS)  # TLS for nobody: no name can be proven


def _hello(data: bytes) -> bytes:
    """The body of the ClientHello, put together from its records."""
    body = b""
    position = 0
    while True:
        if position + 5 > len(data):
            raise _Short
        if data[position] != _HANDSHAKE or data[position + 1] != 3:
            raise ValueError("not a handshake")
        size = int.from_bytes(data[position + 3 : position + 5])
        if not 0 < size <= limits.HELLO_BYTES_MAX:
            raise ValueError("a record of an impossible size")
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


def _read_hello(hello: bytes) -> Sniffed:
    position = 34  # after version and random
    for prefix in (1, 2, 1):  # session, cipher suites, compression
        position = _end(hello, position, prefix)
    if position == len(hello):
        return Sniffed(Kind.TLS)
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
            return Sniffed(Kind.TLS)  # two of a kind: the server might read the other one
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
        return ""  # several names, or one of another kind
    try:
        return normal_name(value.decode("ascii"))
    except (InvalidArgument, UnicodeDecodeError):
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
