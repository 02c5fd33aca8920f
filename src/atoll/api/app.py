"""Control as an ASGI application: every endpoint on its path, inside the edge that nothing leaks through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.routing import BaseRoute, Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from atoll import __version__
from atoll.api import openapi
from atoll.api.edge import Edge
from atoll.api.endpoint import Call, Endpoint, Nothing, Reply, Resource
from atoll.api.errors import unknown_route
from atoll.api.facade import Facade, Fronts
from atoll.api.ingress.addresses import Addresses
from atoll.api.ingress.gate import Gate
from atoll.api.ingress.routes import Routes
from atoll.api.proxies import Proxied
from atoll.api.v1 import (
    archives,
    contexts,
    evaluate,
    events,
    filecontent,
    files,
    filesearch,
    fileurls,
    filewatch,
    git,
    keys,
    node,
    policies,
    portlinks,
    processes,
    sandboxes,
    secrets,
    shells,
    snapshotfiles,
    snapshots,
    states,
    status,
    tenants,
    terminals,
    usage,
    volumefiles,
    volumes,
    volumesnapshots,
    webhooks,
)
from atoll.api.v1 import metrics as sandbox_metrics
from atoll.api.v1 import ports as listening
from atoll.control.service import Control
from atoll.model.origin import Network
from atoll.wire import codec

LOCAL = Addresses()


def endpoints(*, metrics_open: bool = True, addresses: Addresses = LOCAL) -> list[Endpoint[Any, Any]]:
    """Every operation that the server offers."""
    known: list[Endpoint[Any, Any]] = [
        *sandboxes.ENDPOINTS,
        *policies.ENDPOINTS,
        *secrets.ENDPOINTS,
        *processes.ENDPOINTS,
        *contexts.ENDPOINTS,
        *evaluate.ENDPOINTS,
        *files.ENDPOINTS,
        *filecontent.ENDPOINTS,
        *archives.ENDPOINTS,
        *filesearch.ENDPOINTS,
        *filewatch.ENDPOINTS,
        *fileurls.ENDPOINTS,
        *portlinks.ENDPOINTS,
        *portlinks.endpoints(addresses),
        *terminals.ENDPOINTS,
        *shells.ENDPOINTS,
        *listening.ENDPOINTS,
        *sandbox_metrics.ENDPOINTS,
        *git.ENDPOINTS,
        *keys.ENDPOINTS,
        *tenants.ENDPOINTS,
        *usage.ENDPOINTS,
        *events.ENDPOINTS,
        *webhooks.ENDPOINTS,
        *status.ENDPOINTS,
        *states.ENDPOINTS,
        *snapshots.ENDPOINTS,
        *snapshotfiles.ENDPOINTS,
        *volumes.ENDPOINTS,
        *volumefiles.ENDPOINTS,
        *volumesnapshots.ENDPOINTS,
        *node.ENDPOINTS,
        *node.open_endpoints(__version__, metrics_open=metrics_open),
    ]
    return [*known, _description(known)]


def create_app(
    control: Control,
    *,
    metrics_open: bool = True,
    addresses: Addresses = LOCAL,
    ports: Routes | None = None,
    facades: Sequence[Facade] = (),
    proxies: Sequence[Network] = (),
) -> ASGIApp:
    """The application that a server runs: façades, requests for ports of sandboxes, and the API for all others."""
    by_path: dict[str, dict[str, Endpoint[Any, Any]]] = {}
    for endpoint in endpoints(metrics_open=metrics_open, addresses=addresses):
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    routes: list[BaseRoute] = []
    for path, methods in by_path.items():
        resource = Resource(control, path, methods)
        routes.append(Route(path, resource))
        if any(endpoint.upgrade is not None for endpoint in methods.values()):
            routes.append(WebSocketRoute(path, resource))
    router = Router(routes, redirect_slashes=False, default=_not_found)
    gate = Gate(router, control.ingress, ports or Routes.native(addresses.domain))
    edge = Edge(Fronts(gate, facades, control, addresses) if facades else gate, control.metrics)
    return Proxied(edge, proxies) if proxies else edge


def _description(known: list[Endpoint[Any, Any]]) -> Endpoint[Nothing, Nothing]:
    described: list[bytes] = []

    async def show(call: Call[Nothing, Nothing]) -> Reply:  # noqa: ARG001 - the same for every caller
        if not described:
            described.append(codec.encode(openapi.document([*known, endpoint], __version__)))
        return Reply(described[0])

    endpoint = Endpoint("GET", "/openapi.json", "Describe the API", show, gives={"application/json": None}, public=True)
    return endpoint


async def _not_found(scope: Scope, _receive: Receive, _send: Send) -> None:
    raise unknown_route(scope["path"])
