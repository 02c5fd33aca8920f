"""What a client of E2B holds outlives a crash of the server."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
import pytest

from atoll.testing.server import Server

pytestmark = pytest.mark.real


def test_a_sandbox_and_its_tokens_outlive_a_crash(make_server: Callable[..., Server]) -> None:
    server = make_server()
    made = server.request("POST", "/v2/sandboxes", json={"templateID": "base", "timeout": 200}).json()
    headers = {"e2b-sandbox-id": made["sandboxID"], "x-access-token": made["envdAccessToken"]}
    httpx2.post(f"{server.url}/files?path=/tmp/f", content=b"kept", headers=headers).raise_for_status()
    server.kill()
    server.start()
    assert httpx2.get(f"{server.url}/files?path=/tmp/f", headers=headers).content == b"kept"
    again = server.request("POST", f"/v2/sandboxes/{made['sandboxID']}/connect", json={"timeout": 100})
    assert (again.status_code, again.json()["envdAccessToken"]) == (200, made["envdAccessToken"])
