"""A control over a node in memory, in virtual time, with a database of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from atoll.control.authz import ALL_SCOPES, Principal
from atoll.control.policies import Lists
from atoll.control.service import Control
from atoll.control.store.engine import Store, sqlite_url
from atoll.telemetry import Metrics
from atoll.testing.clock import VirtualClock
from atoll.testing.nodes import FakeNode

ME = Principal("default", "ak", ALL_SCOPES)
OTHER = Principal("other", "ak2", ALL_SCOPES)


@dataclass
class World:
    """Everything that outlives a server, and the server."""

    control: Control
    node: FakeNode
    clock: VirtualClock
    metrics: Metrics
    me: Principal = ME
    other: Principal = OTHER


class Opener(Protocol):
    def __call__(
        self, node: FakeNode, clock: VirtualClock, egress_lists: Lists | None = None
    ) -> AbstractAsyncContextManager[World]: ...


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def open_world(tmp_path: Path) -> Opener:
    """Starts a server on this test's database; a second one finds what the first has left."""

    @asynccontextmanager
    async def opened(node: FakeNode, clock: VirtualClock, egress_lists: Lists | None = None) -> AsyncIterator[World]:
        async with node.running(), Store.open(sqlite_url(tmp_path / "atoll.db")) as store:
            metrics = Metrics()
            opening = Control.open(store, node, clock, metrics, tmp_path / "key", egress_lists=egress_lists)
            async with opening as control:
                yield World(control, node, clock, metrics)

    return opened


@pytest.fixture
async def world(open_world: Opener) -> AsyncIterator[World]:
    async with open_world(FakeNode(), VirtualClock()) as world:
        yield world
