"""Requests that trusted proxies pass on: to all that is behind, they come from whom the proxy was asked by."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from atoll.model.origin import Network, origin


class Proxied:
    """Wraps an application; used only where the operator trusts proxies. What others say is not looked at."""

    def __init__(self, app: ASGIApp, trusted: Sequence[Network]) -> None:
        self._app = app
        self._trusted = trusted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        if client:
            values = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
            source = origin(client[0], values, self._trusted)
            if source != client[0]:
                scope["client"] = (source, 0)
        await self._app(scope, receive, send)
