"""A whole server in one process: node, database, control and HTTP edge, joined."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.types import ASGIApp

from atoll import __version__
from atoll.api import facade
from atoll.api.app import create_app
from atoll.api.ingress.addresses import Addresses
from atoll.api.ingress.routes import Routes
from atoll.api.tracing import Traced
from atoll.app import privatefile
from atoll.app.settings import Settings
from atoll.control import vault
from atoll.control.clock import SystemClock
from atoll.control.options import ControlOptions
from atoll.control.service import Control, Keyring
from atoll.control.store.engine import Store, sqlite_url
from atoll.model.errors import Unavailable
from atoll.model.origin import parse_proxies
from atoll.model.policy import parse_lists
from atoll.model.usage import Prices
from atoll.telemetry import Metrics, Tracing
from atoll.wire import porttoken
from atoll.wire.node import NodePort

NodeOpener = Callable[[Settings], AbstractAsyncContextManager[NodePort]]


@dataclass(frozen=True, slots=True)
class Server:
    """What a process serves."""

    app: ASGIApp
    control: Control
    ports: Routes
    """Which requests are for ports of sandboxes."""


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
    from atoll.node.egress.addresses import parse_networks
    from atoll.node.egress.egress import EgressSettings
    from atoll.node.egress.resolver import parse_servers
    from atoll.node.install.layout import Layout
    from atoll.node.snapshotfile.signing import parse_keys

    layout = Layout(cache=settings.cache, data=settings.data, runsc=settings.runsc)
    chosen = NodeSettings(
        layout=layout,
        pool_size_bytes=settings.pool_size_bytes,
        runtime=settings.runtime,
        memory_overcommit=settings.memory_overcommit,
        warm_size=settings.warm_size,
        egress=EgressSettings(
            servers=parse_servers(settings.egress_dns),
            opened=parse_networks(settings.egress_open),
            closed=parse_networks(settings.egress_close),
            trusted_file=settings.egress_ca,
        ),
        snapshot_trust=parse_keys(settings.snapshot_trust),
    )
    async with Node.open(chosen) as node:
        yield node


@asynccontextmanager
async def compose(settings: Settings, open_node: NodeOpener = open_node) -> AsyncIterator[Server]:
    """A server over the settings' data directory, which the caller has locked."""
    metrics = Metrics(__version__)
    async with open_node(settings) as node, Store.open(_database(settings)) as store:
        async with Control.open(
            store,
            node,
            SystemClock(),
            metrics,
            settings.data / "key",
            keyring=Keyring(links=_link_secret(settings), secrets=_secrets_keys(settings)),
            egress_lists=parse_lists(settings.egress_lists),
            options=_control_options(settings),
        ) as control:
            addresses = Addresses(settings.domain, settings.public_url)
            facades = facade.load()
            patterns = [pattern for known in facades for pattern in known.port_patterns(settings.domain)]
            ports = Routes((*patterns, *Routes.native(settings.domain).patterns))
            app = create_app(
                control,
                metrics_open=settings.metrics_open,
                addresses=addresses,
                ports=ports,
                facades=facades,
                proxies=parse_proxies(settings.trusted_proxies),
            )
            with _traced(app, settings) as served:
                yield Server(served, control, ports)


@contextmanager
def _traced(app: ASGIApp, settings: Settings) -> Iterator[ASGIApp]:
    """The application with traces of its requests, if the operator wants them."""
    if not settings.otel_url:
        yield app
        return
    tracing = Tracing.to(settings.otel_url)
    try:
        yield Traced(app, tracing)
    finally:
        tracing.close()


def _secrets_keys(settings: Settings) -> bytes:
    """What encrypts secrets in the database: given by the operator, or made at the first start."""
    return settings.secrets_key.encode() or privatefile.read_or_make(settings.data / "secrets.key", vault.key_new)


def _link_secret(settings: Settings) -> bytes:
    """What signs links to ports, so that they outlive a restart of the server."""
    return privatefile.read_or_make(settings.data / "link-secret", lambda: secrets.token_bytes(porttoken.SECRET_BYTES))


def _database(settings: Settings) -> str:
    if settings.database:
        return settings.database
    path = settings.data / "atoll.db"
    _make_private(path)
    return sqlite_url(path)


def _control_options(settings: Settings) -> ControlOptions:
    return ControlOptions(
        prices=Prices(
            settings.price_wall_s,
            settings.price_cpu_s,
            settings.price_memory_gib_s,
            settings.price_disk_gib_s,
            settings.price_egress_gib,
        ),
        currency=settings.currency,
        usage_interval_s=settings.usage_interval_s,
        events_keep_days=settings.events_keep_days,
        events_file=settings.events_file,
        webhook_private=settings.webhook_private,
    )


def _make_private(path: Path) -> None:
    """Only its owner may read the database; SQLite gives its other files the same rights.

    On btrfs its files are changed in place: SQLite maps one of them into memory, and a page that had to be copied on a
    full disk would end the server there and then (SIGBUS).
    """
    for suffix in ("", "-wal", "-shm"):
        privatefile.make_in_place(path.with_name(path.name + suffix))
