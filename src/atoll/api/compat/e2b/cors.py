"""Lets pages of every site use the agent, as E2B's does: signed addresses are made for browsers.

A page shows nothing that opens a sandbox by itself: there are no cookies, and what it asks for takes a token or a
signature as everywhere.
"""

from __future__ import annotations

from typing import Final

from starlette.types import Message, Scope, Send

_ASKED: Final = b"access-control-request-method"
_MAX_AGE_S: Final = b"7200"


def is_preflight(scope: Scope) -> bool:
    return scope.get("method") == "OPTIONS" and any(name == _ASKED for name, _ in scope["headers"])


async def answer_preflight(scope: Scope, send: Send) -> None:
    """Whatever the page wants to send."""
    asked = {name: value for name, value in scope["headers"] if name.startswith(b"access-control-request-")}
    headers = [
        (b"access-control-allow-origin", b"*"),
        (b"access-control-allow-methods", asked[_ASKED]),
        (b"access-control-max-age", _MAX_AGE_S),
        (b"vary", b"Access-Control-Request-Method, Access-Control-Request-Headers"),
    ]
    if wanted := asked.get(b"access-control-request-headers"):
        headers.append((b"access-control-allow-headers", wanted))
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def for_pages(send: Send) -> Send:
    """Answers that a page may read."""

    async def send_for_pages(message: Message) -> None:
        if message["type"] == "http.response.start":
            more = [(b"access-control-allow-origin", b"*"), (b"access-control-expose-headers", b"*")]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return send_for_pages
