"""Traces of requests: one span each, around everything else, with the words that the log has."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from atoll.api.edge import SCOPE_KEY, Exchange, sandbox_of
from atoll.telemetry import Tracing


class Traced:
    """Wraps an application; used only where the operator wants traces."""

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        method = scope.get("method", "WS")
        with self._tracing.span(method, {"traceparent": headers.get("traceparent", "")}) as found:
            try:
                await self._app(scope, receive, send)
            finally:
                exchange = scope.get(SCOPE_KEY)
                if isinstance(exchange, Exchange):
                    found["http.request.method"] = method
                    found["http.route"] = exchange.route
                    found["http.response.status_code"] = exchange.status
                    found["atoll.request_id"] = exchange.request_id
                    found["atoll.sandbox"] = sandbox_of(scope, exchange)
