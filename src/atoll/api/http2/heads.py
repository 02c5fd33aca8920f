"""Heads of HTTP/2 as the application knows heads, and back; pure.

The application sees what it would see of HTTP/1.1: a Host, one Cookie, and a body without a length as `chunked`. What
the parser of HTTP/1.1 would not have let through does not get through here either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from atoll.model import limits

Head = list[tuple[bytes, bytes]]

_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}")
_TARGET = re.compile(rb"/[\x21-\x7e]*|\*")
_AUTHORITY = re.compile(rb"[A-Za-z0-9._~:\[\]-]{1,270}")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_NO_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]|\A[ \t]|[ \t]\Z")
_HOP = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})


class BadHead(Exception):
    """A head that no honest client sends."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request as it was understood."""

    method: str
    target: bytes
    headers: Head

    @property
    def waits_for_word(self) -> bool:
        """Whether the client sends its body only after it was told to."""
        return any(name == b"expect" and value.lower() == b"100-continue" for name, value in self.headers)

    def scope(self) -> dict[str, Any]:
        """The part of an ASGI scope that the head says."""
        raw_path, _, query = self.target.partition(b"?")
        return {
            "type": "http",
            "http_version": "2",
            "method": self.method,
            "path": unquote(raw_path.decode("ascii")),
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "headers": self.headers,
        }


def request_head(fields: Iterable[tuple[bytes, bytes]], *, has_body: bool) -> RequestHead:
    """Read a head; BadHead if a line of HTTP/1.1 could not say the same."""
    pseudo: dict[bytes, bytes] = {}
    headers: Head = []
    for name, value in fields:
        if name.startswith(b":"):
            pseudo[name] = value
        elif _NAME.fullmatch(name) is None or _NO_VALUE.search(value) or name in _HOP:
            raise BadHead("a header that is none")
        else:
            headers.append((name, value))
    method, target = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
    if method == b"CONNECT" or _METHOD.fullmatch(method) is None or _TARGET.fullmatch(target) is None:
        raise BadHead("no request")
    if pseudo.get(b":scheme") != b"https" or (target == b"*" and method != b"OPTIONS"):
        raise BadHead("no request for this server")
    headers = [(b"host", _host(pseudo, headers)), *_with_one_cookie(headers)]
    size_bytes = len(target) + sum(len(name) + len(value) + 4 for name, value in headers)
    if size_bytes > limits.HTTP_HEAD_BYTES_MAX:
        raise BadHead("the head is too large")
    if has_body and not any(name == b"content-length" for name, _ in headers):
        headers.append((b"transfer-encoding", b"chunked"))
    return RequestHead(method.decode("ascii"), target, headers)


def _host(pseudo: dict[bytes, bytes], headers: Head) -> bytes:
    """The one host that is named. Two would be a request that two readers understand in two ways."""
    named = {value.lower() for name, value in headers if name == b"host"}
    named |= {pseudo[b":authority"].lower()} if b":authority" in pseudo else set()
    if len(named) != 1 or _AUTHORITY.fullmatch(host := named.pop()) is None:
        raise BadHead("no host, or several")
    return host


def _with_one_cookie(headers: Head) -> Head:
    """Without Host; cookies, which HTTP/2 may send one by one, as one line, as every other reader expects them."""
    cookies = [value for name, value in headers if name == b"cookie" and value]
    kept = [(name, value) for name, value in headers if name not in (b"cookie", b"host")]
    return [*kept, (b"cookie", b"; ".join(cookies))] if cookies else kept


def answer_head(status: int, headers: Iterable[tuple[bytes, bytes]]) -> Head:
    """The head of an answer, without what concerns a connection of HTTP/1.1 only."""
    lowered = ((name.lower(), value) for name, value in headers)
    return [(b":status", str(status).encode("ascii")), *((name, value) for name, value in lowered if name not in _HOP)]
