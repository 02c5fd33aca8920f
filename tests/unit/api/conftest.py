"""The real application over a node in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp

from atoll.api.app import create_app
from atoll.control.clock import SystemClock
from atoll.control.service import Control
from atoll.control.store.engine import Store, sqlite_url
from atoll.telemetry import Metrics
from atoll.testing.asgi import Caller
from atoll.testing.fakeguest import FakeGuest
from atoll.testing.nodes import FakeNode


@dataclass
class Edge:
    """A server without a port."""

    app: ASGIApp
    control: Control
    node: FakeNode
    caller: Caller
    sandbox: str = ""

    @property
    def guest(self) -> FakeGuest:
        return self.node.guests[self.sandbox]

    async def ask(self, method: str, target: str, body: Any = None, **options: Any) -> Any:
        """A request; `~` at its beginning is the test's sandbox."""
        target = target.replace("~", f"/v1/sandboxes/{self.sandbox}", 1)
        return await self.caller.ask(method, target, body, **options)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def edge(tmp_path: Path) -> AsyncIterator[Edge]:
    key_path = tmp_path / "key"
    async with FakeNode.open() as node, Store.open(sqlite_url(tmp_path / "db")) as store:
        async with Control.open(store, node, SystemClock(), Metrics(), key_path) as control:
            app = create_app(control)
            yield Edge(app, control, node, Caller(app, key_path.read_text().strip()))


@pytest.fixture
async def inside(edge: Edge) -> Edge:
    """An edge with one running sandbox."""
    answer = await edge.ask("POST", "/v1/sandboxes", {})
    edge.sandbox = answer.json()["sandbox"]["id"]
    return edge
