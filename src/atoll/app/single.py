"""A whole server in one process: node, database, control and HTTP edge, joined."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.types import ASGIApp

from atoll.api.app import create_app
from atoll.app.settings import Settings
from atoll.control.clock import SystemClock
from atoll.control.service import Control
from atoll.control.store.engine import Store, sqlite_url
from atoll.model.errors import Unavailable
from atoll.telemetry import Metrics
from atoll.wire.node import NodePort

NodeOpener = Callable[[Settings], AbstractAsyncContextManager[NodePort]]


@dataclass(frozen=True, slots=True)
class Server:
    """What a process serves."""

    app: ASGIApp
    control: Control


@asynccontextmanager
async def open_node(settings: Settings) -> AsyncIterator[NodePort]:
    """The node of this machine. On exit it lets go of its sandboxes, and they go on."""
    if os.geteuid() != 0:
        raise Unavailable(
            "a server needs root: it makes namespaces, mounts and cgroups",
            code="not_root",
            hint="Run it with sudo. The SDK and the other commands do not need root.",
        )
    # Here, because the node is a large import that control and the HTTP edge do without.
    from atoll.node.daemon import Node, NodeSettings
    from atoll.node.install.layout import Layout

    layout = Layout(cache=settings.cache, data=settings.data, runsc=settings.runsc)
    chosen = NodeSettings(
        layout=layout,
        pool_size_bytes=settings.pool_size_bytes,
        runtime=settings.runtime,
        memory_overcommit=settings.memory_overcommit,
    )
    async with Node.open(chosen) as node:
        yield node


@asynccontextmanager
async def compose(settings: Settings, open_node: NodeOpener = open_node) -> AsyncIterator[Server]:
    """A server over the settings' data directory, which the caller has locked."""
    database = settings.data / "atoll.db"
    _make_private(database)
    metrics = Metrics()
    async with open_node(settings) as node, Store.open(sqlite_url(database)) as store:
        async with Control.open(store, node, SystemClock(), metrics, settings.data / "key") as control:
            yield Server(create_app(control, metrics_open=settings.metrics_open), control)


def _make_private(path: Path) -> None:
    """Only its owner may read the database; SQLite gives its other files the same rights."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
