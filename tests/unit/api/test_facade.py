"""Which façade gets which request, and how façades are found."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from atoll.api import facade
from atoll.api.facade import Facade, Fronts, RequestHead
from atoll.api.ingress.addresses import Addresses
from atoll.api.ingress.routes import Pattern

pytestmark = pytest.mark.anyio


class Vendor:
    """A façade that knows its requests by a path or by a host name."""

    def __init__(self, name: str, heard: list[str]) -> None:
        self.name = name
        self._heard = heard

    def matches(self, head: RequestHead, domain: str) -> bool:
        return head.path.startswith(f"/{self.name}") or head.host == f"{self.name}.{domain}"

    def application(self, control: Any, addresses: Addresses) -> ASGIApp:
        return answering(self.name, self._heard)

    def port_patterns(self, domain: str) -> Sequence[Pattern]:
        return ()


def answering(name: str, heard: list[str]) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        heard.append(name)

    return app


VENDOR = Vendor("loaded", [])


@pytest.mark.parametrize(
    ("path", "host", "expected"),
    [
        ("/one/x", "example.org", "one"),
        ("/two", "example.org:7070", "two"),
        ("/", "TWO.example.org:7070", "two"),
        ("/v1/sandboxes", "example.org", "ours"),
        ("/v1/sandboxes", "two.example.com", "ours"),
    ],
)
async def test_the_first_that_knows_a_request_answers_it(path: str, host: str, expected: str) -> None:
    heard: list[str] = []
    vendors: list[Facade] = [Vendor("one", heard), Vendor("two", heard)]
    nothing: Any = None
    fronts = Fronts(answering("ours", heard), vendors, nothing, Addresses("example.org"))
    scope = {"type": "http", "path": path, "headers": [(b"host", host.encode())]}
    await fronts(scope, nothing, nothing)
    assert heard == [expected]


def test_a_head_gives_its_headers() -> None:
    head = RequestHead("h", "/", [(b"x-key", b" a "), (b"x-key", b"b")])
    assert head.header(b"x-key") == "a"
    assert head.header(b"x-other") == ""


def test_what_is_installed_is_loaded_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        EntryPoint("b", f"{__name__}:VENDOR", facade.GROUP),
        EntryPoint("a", f"{__name__}:Vendor.__name__", facade.GROUP),
    ]
    loaded: list[str] = []

    def load(entry: EntryPoint) -> object:
        loaded.append(entry.name)
        return VENDOR

    monkeypatch.setattr(EntryPoint, "load", load)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: found if group == facade.GROUP else [])
    assert [vendor.name for vendor in facade.load()] == ["loaded", "loaded"]
    assert loaded == ["a", "b"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
