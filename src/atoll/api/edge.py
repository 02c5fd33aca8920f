"""The outermost layer of the HTTP edge: request ids, errors, the log line and the metrics of each request.

It is plain ASGI, so that streams keep their back-pressure and a caller who leaves is noticed.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from atoll.api.errors import ClientGone, as_refusal, of_exception, send_problem
from atoll.model.errors import Forbidden, LimitExceeded, Unauthenticated
from atoll.telemetry import Metrics

log = structlog.get_logger(__name__)

SCOPE_KEY = "atoll.exchange"

_REFUSED = frozenset({kind.http_status for kind in (Unauthenticated, Forbidden, LimitExceeded)})
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


@dataclass(slots=True)
class Exchange:
    """One request and what has been answered so far."""

    request_id: str
    route: str = "none"
    status: int = 0
    """0 until the answer has begun."""
    sandbox: str = ""
    """The sandbox that it was about, where the path does not say."""
    code: str = ""
    """The code of the error that was answered, if it was one."""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    """What the answer says beside its own headers: the caller's rate."""
    done: Callable[[Exchange], None] | None = None
    """Called when the answer is complete."""


class Edge:
    """Wraps the routes; nothing that they raise leaves it."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return  # no route here speaks anything else; the server closes what is not answered
        exchange = Exchange(_request_id(scope["headers"]))
        scope[SCOPE_KEY] = exchange
        id_header = (b"x-request-id", exchange.request_id.encode("ascii"))

        async def send_noting(message: Message) -> None:
            if message["type"] == "websocket.accept":
                exchange.status = 101
            elif message["type"] in ("http.response.start", "websocket.http.response.start"):
                exchange.status = message["status"]
                message["headers"] = [*message.get("headers", ()), *exchange.headers, id_header]
            await send(message)

        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=exchange.request_id)
        begun = time.monotonic()
        try:
            await self._app(scope, receive, send_noting)
        except ClientGone:
            exchange.status = exchange.status or 499
        except Exception as error:
            await self._fail(error, exchange, as_refusal(send_noting) if scope["type"] == "websocket" else send_noting)
        finally:
            self._report(scope, exchange, time.monotonic() - begun)

    async def _fail(self, error: Exception, exchange: Exchange, send: Send) -> None:
        told = of_exception(error)
        exchange.code = told.code
        if told is not error:
            log.error("request_crashed", request_id=exchange.request_id, route=exchange.route, exc_info=error)
        elif told.http_status >= 500:
            log.warning("request_failed", request_id=exchange.request_id, error=repr(told), detail=told.detail)
        if exchange.status == 0:
            await send_problem(told, exchange.request_id, send)
        # An answer that has begun cannot become an error: it stays incomplete, and the server closes the connection.

    def _report(self, scope: Scope, exchange: Exchange, duration_s: float) -> None:
        if exchange.done is not None:
            exchange.done(exchange)
        method = scope.get("method", "GET") if exchange.route != "none" else "other"
        if exchange.code and exchange.status in _REFUSED:
            self._metrics.requests_refused.labels(exchange.code).inc()
        self._metrics.http_request_s.labels(method, exchange.route, str(exchange.status)).observe(duration_s)
        log.debug(
            "request",
            request_id=exchange.request_id,
            method=method,
            route=exchange.route,
            status=exchange.status,
            duration_ms=round(duration_s * 1000, 2),
        )


def sandbox_of(scope: Scope, exchange: Exchange) -> str:
    """The sandbox that a request was about, as the caller named it; for the log and for traces."""
    return exchange.sandbox or str(scope.get("path_params", {}).get("sandbox", ""))[:80]


def exchange_of(scope: Scope) -> Exchange:
    exchange: Exchange = scope[SCOPE_KEY]
    return exchange


def _request_id(headers: list[tuple[bytes, bytes]]) -> str:
    """The caller's own id if it is harmless, so that its log and ours agree; else a new one."""
    for name, value in headers:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return value.decode("ascii")
    return secrets.token_hex(8)
