"""Ports of sandboxes that were made through E2B's API: public as theirs are, or for the holder of a token."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from atoll.testing.server import Server

pytestmark = pytest.mark.real

SERVE = ["python3", "-m", "http.server", "8000", "-d", "/etc"]


def made(server: Server, **network: Any) -> dict[str, Any]:
    answer = server.request("POST", "/v2/sandboxes", json={"templateID": "base", "timeout": 100, "network": network})
    assert answer.status_code == 201
    sandbox = server.connect(answer.json()["sandboxID"])
    sandbox.commands.start(SERVE)
    sandbox.commands.run("until curl -sf localhost:8000/hostname; do sleep 0.05; done", check=True)
    return dict(answer.json())


def ways(sandbox_id: str) -> tuple[dict[str, str], ...]:
    """Port 8000 in E2B's headers, and by its name."""
    return {"e2b-sandbox-id": sandbox_id, "e2b-sandbox-port": "8000"}, {"host": f"8000-{sandbox_id}.localhost"}


def knock(server: Server, sandbox: dict[str, Any], *, by_name: bool = False, **headers: str) -> int:
    """A request to port 8000, without an API key."""
    named = ways(sandbox["sandboxID"])[by_name]
    shown = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.get(f"{server.url}/hostname", headers={**named, **shown}, timeout=30).status_code


def test_a_port_is_open_to_whoever_knows_its_name(server: Server) -> None:
    assert knock(server, made(server)) == 200


def test_a_private_port_opens_for_its_token_only(server: Server) -> None:
    sandbox = made(server, allowPublicTraffic=False)
    other = made(server)
    for by_name in (False, True):
        assert knock(server, sandbox, by_name=by_name) == 403
        for token, status in (
            (other["trafficAccessToken"], 403),
            (sandbox["envdAccessToken"], 403),
            (sandbox["trafficAccessToken"], 200),
        ):
            assert knock(server, sandbox, by_name=by_name, e2b_traffic_access_token=token) == status


def test_of_a_sandbox_of_ours_a_name_tells_in_our_words(server: Server) -> None:
    with server.create("base") as sandbox:
        answer = httpx2.get(server.url, headers=ways(sandbox.id)[1], timeout=30)
        assert (answer.status_code, answer.json()["type"]) == (401, "urn:atoll:error:port_private")


def test_a_port_that_does_not_answer_is_told_as_their_proxy_does(server: Server) -> None:
    """Also when the sandbox sleeps or has ended."""
    made = server.request("POST", "/v2/sandboxes", json={"templateID": "base", "timeout": 100}).json()
    gone = {"sandboxId": made["sandboxID"], "message": "The sandbox was not found", "code": 502}

    def told() -> Any:
        by_header, by_name = (httpx2.get(server.url, headers=way, timeout=30) for way in ways(made["sandboxID"]))
        assert (by_header.status_code, by_name.status_code) == (502, 502)
        assert by_header.json() == by_name.json()
        return by_header.json()

    closed = {"message": "The sandbox is running but port is not open", "port": 8000}
    assert told() == {**gone, **closed}
    server.request("POST", f"/sandboxes/{made['sandboxID']}/pause", json={})
    assert told() == gone
    server.request("DELETE", f"/sandboxes/{made['sandboxID']}")
    assert told() == gone


def test_a_mask_that_is_no_host_leaves_no_sandbox(server: Server) -> None:
    before = server.request("GET", "/v2/sandboxes").json()
    body = {"templateID": "base", "timeout": 100, "network": {"maskRequestHost": "two words"}}
    answer = server.request("POST", "/v2/sandboxes", json=body)
    assert (answer.status_code, "mask_host" in answer.json()["message"]) == (400, True)
    assert len(server.request("GET", "/v2/sandboxes").json()) == len(before)


def test_a_copy_has_the_ports_of_its_sandbox(server: Server) -> None:
    sandbox = made(server, allowPublicTraffic=False, maskRequestHost="app.example:${PORT}")
    (copy,) = server.request("POST", f"/sandboxes/{sandbox['sandboxID']}/fork", json={"timeout": 100}).json()
    told = server.request("GET", f"/v1/sandboxes/{copy['sandbox']['sandboxID']}/ports/8000/access").json()
    assert (told["public"], told["mask_host"]) == (False, "app.example:{port}")
    shown = server.request("GET", f"/sandboxes/{copy['sandbox']['sandboxID']}").json()["network"]
    assert (shown["allowPublicTraffic"], shown["maskRequestHost"]) == (False, "app.example:${PORT}")
