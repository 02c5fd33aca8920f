"""Control as an ASGI application: every endpoint on its path, inside the edge that nothing leaks through."""

from __future__ import annotations

from typing import Any

from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from atoll import __version__
from atoll.api import openapi
from atoll.api.edge import Edge
from atoll.api.endpoint import Call, Endpoint, Nothing, Reply, Resource
from atoll.api.errors import unknown_route
from atoll.api.v1 import files, node, processes, sandboxes
from atoll.control.service import Control
from atoll.wire import codec


def endpoints(*, metrics_open: bool = True) -> list[Endpoint[Any, Any]]:
    """Every operation that the server offers."""
    known: list[Endpoint[Any, Any]] = [
        *sandboxes.ENDPOINTS,
        *processes.ENDPOINTS,
        *files.ENDPOINTS,
        *node.ENDPOINTS,
        *node.open_endpoints(__version__, metrics_open=metrics_open),
    ]
    return [*known, _description(known)]


def create_app(control: Control, *, metrics_open: bool = True) -> ASGIApp:
    """The application that a server runs."""
    by_path: dict[str, dict[str, Endpoint[Any, Any]]] = {}
    for endpoint in endpoints(metrics_open=metrics_open):
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    routes = [Route(path, Resource(control, path, methods)) for path, methods in by_path.items()]
    return Edge(Router(routes, redirect_slashes=False, default=_not_found), control.metrics)


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
