"""Placeholders to values in the head of a request, and who may have which. Pure.

A value goes into a request only if its secret is bound to the host and port that TLS has proven. Everywhere else a
placeholder stays what it is, and that is reported.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from atoll.model.policy import FRAMING_HEADERS, HttpRule
from atoll.model.secret import PLACEHOLDER, Grant

Headers = list[tuple[bytes, bytes]]

_BASIC = b"basic "


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A request's head as it goes on. `used` and `strayed` name secrets; strayed are those whose placeholder stayed."""

    target: bytes
    headers: Headers
    used: tuple[str, ...] = ()
    strayed: tuple[str, ...] = ()


def rewrite(
    target: bytes, headers: Headers, rules: Sequence[HttpRule], bound: Sequence[Grant], others: Sequence[Grant]
) -> Rewritten:
    """Apply the rules' changes, then put values in. Framing headers are never touched."""
    headers = _changed(headers, rules)
    used: list[str] = []
    for grant in bound:
        target, headers, was_used = _put_in(target, headers, grant)
        if was_used:
            used.append(grant.secret.name)
    return Rewritten(target, headers, tuple(used), strayed_in(target, headers, [*bound, *others]))


def strayed_in(target: bytes, headers: Headers, grants: Sequence[Grant]) -> tuple[str, ...]:
    """The secrets whose placeholder is in a head."""
    found = set(PLACEHOLDER.findall(target))
    for _, value in headers:
        found.update(PLACEHOLDER.findall(value))
        found.update(PLACEHOLDER.findall(_basic_decoded(value) or b""))
    return tuple(grant.secret.name for grant in grants if grant.placeholder.encode() in found)


def _changed(headers: Headers, rules: Sequence[HttpRule]) -> Headers:
    for rule in rules:
        gone = {name.lower().encode("ascii") for name in (*rule.remove_headers, *rule.set_headers)}
        headers = [(name, value) for name, value in headers if name.lower() not in gone]
        headers += [(name.encode("ascii"), value.encode("ascii")) for name, value in rule.set_headers.items()]
    return headers


def _put_in(target: bytes, headers: Headers, grant: Grant) -> tuple[bytes, Headers, bool]:
    placeholder, value = grant.placeholder.encode(), grant.value.reveal().encode("ascii")
    secret = grant.secret
    before = (target, headers)
    path, mark, query = target.partition(b"?")
    if secret.query and placeholder in query:
        target = path + mark + query.replace(placeholder, quote(value, safe="").encode("ascii"))
    headers = [(name, _header_value(name, content, placeholder, value, secret.basic)) for name, content in headers]
    if secret.header:
        wanted = secret.header.lower().encode("ascii")
        headers = [(name, content) for name, content in headers if name.lower() != wanted]
        headers.append((wanted, secret.format.encode("ascii").replace(b"{}", value)))
    return target, headers, (target, headers) != before


def _header_value(name: bytes, content: bytes, placeholder: bytes, value: bytes, basic: bool) -> bytes:
    if name.lower().decode("latin-1") in FRAMING_HEADERS:
        return content
    if basic and (decoded := _basic_decoded(content)) and placeholder in decoded:
        return b"Basic " + base64.b64encode(decoded.replace(placeholder, value))
    return content.replace(placeholder, value)


def _basic_decoded(content: bytes) -> bytes | None:
    if content[: len(_BASIC)].lower() != _BASIC:
        return None
    try:
        return base64.b64decode(content[len(_BASIC) :].strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
