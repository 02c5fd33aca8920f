"""Who may reach a port of a sandbox from outside, and what the server behind it sees of the address that was asked."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from atoll.model import limits
from atoll.model.errors import InvalidArgument

MASK_DEFAULT = "localhost:{port}"
ANY_PORT = 0
"""Stands for every port of a sandbox that has no rules of its own."""

_MASK = re.compile(r"[A-Za-z0-9.-]+(?::(?:\d{1,5}|\{port\}))?")


@dataclass(frozen=True, slots=True)
class PortAccess:
    """The rules of one port. A port that nobody spoke of has these defaults: private, with its host name masked."""

    public: bool = False
    mask_host: str = MASK_DEFAULT
    """What the server inside gets as its Host; `{port}` is the port, and nothing at all leaves Host as it came."""
    generation: int = 0
    """Part of every signed link; the next generation makes all links before it worthless."""

    def host_for(self, port: int) -> str:
        """The Host that the server inside gets, or nothing if it gets the caller's."""
        return self.mask_host.replace("{port}", str(port))

    def changed(self, *, public: bool | None, mask_host: str | None, revoke_links: bool) -> PortAccess:
        """These rules with some of them changed; None leaves a rule as it is."""
        return replace(
            self,
            public=self.public if public is None else public,
            mask_host=self.mask_host if mask_host is None else mask_host,
            generation=self.generation + 1 if revoke_links else self.generation,
        ).checked()

    def checked(self) -> PortAccess:
        mask = self.mask_host
        if mask and (len(mask) > limits.HOST_CHARS_MAX or not _MASK.fullmatch(mask)):
            raise InvalidArgument("mask_host is a host name, with a port or {port} after a colon if it has one")
        return self


def port_parse(text: str) -> int:
    """A port number as callers write it; InvalidArgument if it is none."""
    if text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) <= 65535:
        return int(text)
    raise InvalidArgument(f"{text[:20]!r} is not a port", code="invalid_port", hint="A port is between 1 and 65535.")
