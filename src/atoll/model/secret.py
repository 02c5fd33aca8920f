"""Secrets: values that never show themselves, where they may go, and the placeholder that stands for one inside."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NoReturn

from atoll.model import limits
from atoll.model.errors import InvalidArgument
from atoll.model.policy import Rule, parse_rule

PLACEHOLDER_PREFIX = "atoll-secret-"
PLACEHOLDER = re.compile(rb"atoll-secret-[0-9a-f]{32}")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RULE_NAME = re.compile(r"[ -.0-z|~]{1,128}")  # printable ASCII without a slash and braces
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_FORBIDDEN_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection", "upgrade"})


class Hidden:
    """A value that must not be seen: not printed, not logged, not pickled, not compared by accident."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "[hidden]"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a hidden value is not pickled")

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Hidden) and other._value == self._value

    __hash__ = None  # type: ignore[assignment]  # a set or a dictionary of secrets is nobody's wish


@dataclass(frozen=True, slots=True)
class Secret:
    """What is known about a secret without its value.

    The value replaces the placeholder in the headers of requests to `hosts`, over TLS only; with `query` also in the
    query, with `basic` also inside basic authentication. With `header` it is put there whether or not the sandbox sent
    a placeholder; `format` says how, `{}` standing for the value. Inside, the placeholder is the variable `env`, and
    the file `path` if there is one.

    A secret that is `by_rule` has no hosts and no placeholder inside: it goes into the headers in which rules of a
    policy name it, to the hosts of those rules.
    """

    name: str
    hosts: tuple[str, ...]
    env: str = ""
    path: str = ""
    header: str = ""
    format: str = "{}"
    query: bool = False
    basic: bool = False
    by_rule: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Its owner's own labels."""
    version: int = 1
    created_at: datetime | None = None
    changed_at: datetime | None = None

    def checked(self) -> Secret:
        self._check_metadata()
        if self.by_rule:
            if not _RULE_NAME.fullmatch(self.name) or self.hosts or self.env or self.path or self.header:
                raise _wrong("a secret for rules has a printable name without braces and slashes, and nothing else")
            return self
        check_name(self.name)
        if not 0 < len(self.hosts) <= limits.SECRET_HOSTS_MAX:
            raise _wrong(f"a secret is bound to 1 to {limits.SECRET_HOSTS_MAX} hosts")
        self.rules()
        if self.env and (len(self.env) > limits.NAME_CHARS_MAX or not _NAME.fullmatch(self.env)):
            raise _wrong(f"{self.env[:40]!r} cannot be an environment variable")
        if self.path and (not self.path.startswith("/") or len(self.path.encode()) > 1024 or "\0" in self.path):
            raise _wrong("the file of a secret has an absolute path")
        if self.header and (not _HEADER.fullmatch(self.header) or self.header.lower() in _FORBIDDEN_HEADERS):
            raise _wrong(f"{self.header[:40]!r} is not a header that can be set")
        if self.format.count("{}") != 1 or len(self.format) > 128 or not self.format.isprintable():
            raise _wrong("format holds {} once, for the value")
        return self

    def _check_metadata(self) -> None:
        pairs = self.metadata.items()
        if len(pairs) > limits.METADATA_ENTRIES_MAX or any(
            not 0 < len(key) <= limits.METADATA_KEY_CHARS_MAX or len(value) > limits.METADATA_VALUE_CHARS_MAX
            for key, value in pairs
        ):
            raise _wrong("the metadata of a secret is too large")

    def rules(self) -> tuple[Rule, ...]:
        rules = tuple(parse_rule(host) for host in self.hosts)
        if any(rule.network is not None for rule in rules):
            raise _wrong("a secret is bound to names, not to addresses: only a name can prove itself by TLS")
        return rules


@dataclass(frozen=True, slots=True)
class Grant:
    """A secret in one sandbox: where it may go, what stands for it inside, and its value."""

    secret: Secret
    rules: tuple[Rule, ...]
    placeholder: str
    value: Hidden
    inside: bool = True
    """Whether the sandbox itself gets the placeholder."""

    def bound_to(self, name: str, port: int) -> bool:
        return any(rule.matches(name, None, port) for rule in self.rules)


def check_name(name: str) -> None:
    if not 0 < len(name) <= limits.NAME_CHARS_MAX or not _NAME.fullmatch(name):
        raise _wrong(f"{name[:80]!r} cannot be the name of a secret: letters, digits and underscores")


def check_value(value: str) -> None:
    if not 0 < len(value.encode()) <= limits.SECRET_VALUE_BYTES_MAX:
        raise _wrong(f"a secret has 1 to {limits.SECRET_VALUE_BYTES_MAX} bytes")
    if not value.isascii() or not value.isprintable():
        raise _wrong("a secret is printable ASCII, because it travels in a header")


def env_of(secret: Secret) -> str:
    return secret.env or secret.name


def masked(text: bytes, values: Sequence[bytes]) -> bytes:
    """The same text with every value covered by as many asterisks, so that offsets stay right."""
    for value in values:
        if len(value) >= limits.SECRET_MASK_BYTES_MIN and value in text:
            text = text.replace(value, b"*" * len(value))
    return text


def held_back(text: bytes, values: Sequence[bytes]) -> int:
    """How many bytes at the end may be the beginning of a value, and must wait for what follows."""
    return max((_begun(text, value) for value in values), default=0)


def _begun(text: bytes, value: bytes) -> int:
    """How much of a value, but not all of it, is at the end of a text."""
    beginning = value[: limits.SECRET_HOLD_BYTES_MIN]
    at = text.find(beginning, max(0, len(text) - len(value) + 1))
    while at >= 0:
        if value.startswith(text[at:]):
            return len(text) - at
        at = text.find(beginning, at + 1)
    return 0


def _wrong(why: str) -> InvalidArgument:
    return InvalidArgument(why, code="invalid_secret")
