"""Façades: how another vendor's API is told apart from ours, and the loader that finds those there are.

A façade is named by an entry point of the group `atoll.facades`; built-in ones come in by the same door. Vendors route
by path, by host name or by headers, and each has error bodies of its own, so a façade looks at the whole head of a
request and answers it as an ASGI application.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from atoll.api.ingress.addresses import Addresses
from atoll.api.ingress.routes import Pattern, host_of
from atoll.control.service import Control

GROUP = "atoll.facades"


@dataclass(frozen=True, slots=True)
class RequestHead:
    """What a façade may look at to know its own requests."""

    host: str
    """In lower case and without a port."""
    path: str
    headers: Sequence[tuple[bytes, bytes]]

    def header(self, name: bytes) -> str:
        """The first header of that name, which is in lower case; nothing if there is none."""
        return next((value.decode("latin-1").strip() for key, value in self.headers if key == name), "")


class Facade(Protocol):
    """One vendor. The composition root loads it at start and asks it about every request, before our own routes."""

    name: str

    def matches(self, head: RequestHead, domain: str) -> bool:
        """Whether the request is for this façade; pure, quick, and never true for a path of ours (/v1, /openapi.json).

        `domain` is the one under which the server's sandboxes have names.
        """
        ...

    def application(self, control: Control, addresses: Addresses) -> ASGIApp:
        """What answers its requests. Called once, at start. It lives inside the edge: what it raises becomes a problem
        of ours, so it turns errors into its vendor's words itself."""
        ...

    def port_patterns(self, domain: str) -> Sequence[Pattern]:
        """The vendor's own ways to name a port of a sandbox, for the ingress."""
        ...


class Fronts:
    """Gives each request to the first façade that knows it, or to the application behind."""

    def __init__(self, app: ASGIApp, facades: Sequence[Facade], control: Control, addresses: Addresses) -> None:
        self._app = app
        self._domain = addresses.domain
        self._fronts = [(facade, facade.application(control, addresses)) for facade in facades]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            head = RequestHead(host_of(scope["headers"]), scope["path"], scope["headers"])
            for facade, front in self._fronts:
                if facade.matches(head, self._domain):
                    await front(scope, receive, send)
                    return
        await self._app(scope, receive, send)


def load() -> list[Facade]:
    """Every façade that is installed, in the order of their names."""
    found = sorted(metadata.entry_points(group=GROUP), key=lambda entry: entry.name)
    return [entry.load() for entry in found]
