"""Ports of real sandboxes from outside: by name, by header, by signed address; what passes and what is told apart."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from atoll import Sandbox
from atoll.testing.server import Server
from tests.ingress_stage import ask, code_of, handshake, inside, name_of
from tests.waiting import wait_until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[Sandbox]:
    with server.create() as sandbox:
        yield inside(sandbox)


def test_the_signed_address_works_with_curl(server: Server, sandbox: Sandbox) -> None:
    url = sandbox.ports.url(8000)
    assert f"//{name_of(sandbox)}:" in url
    shown = subprocess.run(["curl", "-s", "-L", "-c", "/dev/null", url], capture_output=True, timeout=20, check=True)
    told = json.loads(shown.stdout)
    assert told["path"] == "/"
    assert told["headers"]["host"] == "localhost:8000"


def test_what_is_wrong_is_told_apart(server: Server, sandbox: Sandbox) -> None:
    missing = "sb" + "0" * 36
    assert code_of(ask(server, f"8000-{missing}.localhost", X_API_Key=server.key)) == (404, "sandbox_not_found")
    assert code_of(ask(server, name_of(sandbox, 8001), X_API_Key=server.key)) == (502, "port_closed")
    assert code_of(ask(server, name_of(sandbox, 999), X_API_Key=server.key)) == (403, "port_reserved")
    assert code_of(ask(server, name_of(sandbox, 6000), X_API_Key=server.key)) == (502, "port_not_http")
    assert code_of(ask(server, name_of(sandbox, 6001), X_API_Key=server.key)) == (502, "port_not_http")
    assert code_of(ask(server, name_of(sandbox, 70000), X_API_Key=server.key)) == (400, "invalid_port")
    ended = server.create()
    ended.kill()
    ended.close()
    assert code_of(ask(server, name_of(ended), X_API_Key=server.key)) == (409, "not_running")


def test_a_server_on_loopback_only_is_reached_too(server: Server, sandbox: Sandbox) -> None:
    host = name_of(sandbox, 8100)
    assert json.loads(ask(server, host, "/x", X_API_Key=server.key)[2])["path"] == "/x"
    assert len(ask(server, host, "/big", X_API_Key=server.key)[2]) == 20_000_000
    connection, head, _ = handshake(server, host, "/ws", X_API_Key=server.key)
    connection.close()
    assert head.startswith(b"HTTP/1.1 101 ")


@pytest.mark.parametrize("odd", ["304", "early", "both", "until-end"])
def test_odd_answers_pass_as_they_are_meant(server: Server, sandbox: Sandbox, odd: str) -> None:
    status, headers, body = ask(server, name_of(sandbox), f"/raw/{odd}", X_API_Key=server.key)
    assert (status, body) == ((304, b"") if odd == "304" else (200, b"ok"))
    assert "link" not in headers


@pytest.mark.parametrize(
    ("odd", "code"),
    [
        ("700", "port_not_http"),
        ("control", "port_not_http"),
        ("nothing", "port_not_http"),
        ("announced", "port_not_http"),
    ],
)
def test_broken_answers_are_reported(server: Server, sandbox: Sandbox, odd: str, code: str) -> None:
    assert code_of(ask(server, name_of(sandbox), f"/raw/{odd}", X_API_Key=server.key)) == (502, code)


def test_an_answer_that_is_cut_off_stays_cut_off(server: Server, sandbox: Sandbox) -> None:
    with pytest.raises(http.client.IncompleteRead):
        ask(server, name_of(sandbox), "/raw/short", X_API_Key=server.key)
    head = ask(server, name_of(sandbox), "/x", "HEAD", X_API_Key=server.key)
    assert (head[0], head[1]["content-length"], head[2]) == (200, "1234", b"")


def test_the_guests_own_port_stays_closed_even_when_it_is_made_public(server: Server, sandbox: Sandbox) -> None:
    sandbox.ports.set_access(999, public=True)
    assert code_of(ask(server, name_of(sandbox, 999))) == (403, "port_reserved")


def test_nothing_of_ours_passes_either_way(server: Server, sandbox: Sandbox) -> None:
    """Positive control: what is the caller's own does pass, and so does what the server inside says of itself."""
    status, headers, body = ask(
        server,
        name_of(sandbox),
        "/p?a=1&b=%20",
        X_API_Key=server.key,
        X_Atoll_Other="x",
        X_Mine="kept",
        Authorization="Basic abc",
        Cookie="atoll_port=1.x; mine=1",
        X_Forwarded_For="1.2.3.4",
        Origin=f"http://{name_of(sandbox)}:{urlsplit(server.url).port}",
    )
    told = json.loads(body)
    assert status == 200
    assert told["path"] == "/p?a=1&b=%20"
    got = told["headers"]
    assert not [name for name in got if name.startswith("x-atoll") or name == "x-api-key"]
    assert (got["x-mine"], got["authorization"], got["cookie"]) == ("kept", "Basic abc", "mine=1")
    assert (got["x-forwarded-for"], got["x-forwarded-proto"]) == ("127.0.0.1", "http")
    assert got["x-forwarded-host"].startswith(name_of(sandbox))
    assert got["origin"] == "http://localhost:8000"
    assert server.key not in body.decode()
    assert headers["x-own"] == "yes"
    assert "x-atoll-inside" not in headers
    assert headers["set-cookie"] == "a=1; Path=/"


def test_by_header_where_no_name_leads_here(server: Server, sandbox: Sandbox) -> None:
    link = sandbox.ports.link(8000)
    assert link.base_url == server.url
    told = json.loads(ask(server, "127.0.0.1", "/x", **_keyword(link.headers))[2])
    assert told["path"] == "/x"
    assert code_of(ask(server, "127.0.0.1", X_Atoll_Sandbox=sandbox.id)) == (400, "invalid_route")


def _keyword(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("-", "_"): value for name, value in headers.items()}


def test_the_host_can_be_the_callers_own(server: Server, sandbox: Sandbox) -> None:
    sandbox.ports.set_access(8000, mask_host="")
    told = json.loads(ask(server, name_of(sandbox), X_API_Key=server.key)[2])
    assert told["headers"]["host"] == f"{name_of(sandbox)}:{urlsplit(server.url).port}"
    sandbox.ports.set_access(8000, mask_host="app.example:{port}")
    told = json.loads(ask(server, name_of(sandbox), X_API_Key=server.key)[2])
    assert told["headers"]["host"] == "app.example:8000"
    sandbox.ports.set_access(8000, mask_host="localhost:{port}")
    location = ask(server, name_of(sandbox), "/redirect", X_API_Key=server.key)[1]["location"]
    assert location == "/there?x=1"


def test_traffic_wakes_a_sleeping_sandbox_if_it_may(server: Server) -> None:
    """A caller who may not go in does not wake it either."""
    with server.create(auto_resume=True) as sleeper:
        inside(sleeper)
        for sleep in (sleeper.standby, sleeper.pause):
            asleep = sleep().state
            assert code_of(ask(server, name_of(sleeper))) == (401, "port_private")
            assert sleeper.info().state == asleep
            assert ask(server, name_of(sleeper), X_API_Key=server.key)[0] == 200
            assert sleeper.info().state == "running"
    with server.create() as sleeper:
        sleeper.pause()
        assert code_of(ask(server, name_of(sleeper), X_API_Key=server.key)) == (409, "not_running")


def test_a_head_without_end_is_refused(server: Server) -> None:
    """And the API's own requests are under the same bound."""
    address = urlsplit(server.url)
    with socket.create_connection((str(address.hostname), address.port), timeout=10) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: ")
        connection.settimeout(5)
        wait_until(lambda: _is_closed(connection, b"y" * 16384), 5, "the server hangs up")
    with socket.create_connection((str(address.hostname), address.port), timeout=10) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: " + b"y" * 70_000 + b"\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 431 ")
    assert server.request("GET", "/health").status_code == 200


def _is_closed(connection: socket.socket, data: bytes) -> bool:
    try:
        connection.sendall(data)
    except (ConnectionResetError, BrokenPipeError):
        return True
    return False
