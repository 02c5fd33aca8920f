"""Behind a proxy the audit log has the caller's address, and no caller can choose one."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from atoll.api.app import create_app
from atoll.model.origin import parse_proxies
from atoll.testing.asgi import Caller

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("trusted", "peer", "source"),
    [
        ("10.0.0.0/8", "10.0.0.3", "192.0.2.7"),
        ("10.0.0.0/8", "198.51.100.1", "198.51.100.1"),
        ("", "10.0.0.3", "10.0.0.3"),
    ],
)
async def test_the_audit_log_has_the_address_of_the_caller(edge: Any, trusted: str, peer: str, source: str) -> None:
    app = create_app(edge.control, proxies=parse_proxies(trusted))

    async def from_peer(scope: Scope, receive: Receive, send: Send) -> None:
        scope["client"] = (peer, 4711)
        await app(scope, receive, send)

    key = edge.caller._key
    shown = {"x-forwarded-for": "203.0.113.9, 192.0.2.7"}
    assert (await Caller(from_peer, key).ask("POST", "/v1/sandboxes", {}, headers=shown)).status == 201
    assert (await Caller(from_peer, "atoll_no").ask("POST", "/v1/sandboxes", {}, headers=shown)).status == 401
    edge.control.accounts.refusals.close()
    await edge.control.accounts.events.flush()
    items = (await edge.ask("GET", "/v1/events?action=POST*&action=request.refused")).json()["items"]
    assert [(one["action"], one["source"]) for one in items] == [
        ("POST /v1/sandboxes", source),
        ("request.refused", source),
    ]
