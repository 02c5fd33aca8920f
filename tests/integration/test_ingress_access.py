"""Who may reach a port: keys, links, the public; what a change of that ends, and what the owner can read of it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from atoll import Sandbox
from atoll.cli.port import port
from atoll.testing.server import Server
from tests.ingress_stage import ask, code_of, handshake, inside, name_of
from tests.waiting import wait_until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[Sandbox]:
    with server.create() as sandbox:
        yield inside(sandbox)


def test_a_private_port_tells_apart_who_knocks(server: Server, sandbox: Sandbox) -> None:
    host = name_of(sandbox)
    assert code_of(ask(server, host)) == (401, "port_private")
    assert code_of(ask(server, host, X_Atoll_Token="1.x")) == (403, "port_link_refused")
    assert code_of(ask(server, host, X_API_Key="atoll_" + "x" * 43)) == (401, "unauthenticated")
    assert ask(server, host, X_API_Key=server.key)[0] == 200
    assert ask(server, host, Authorization=f"Bearer {server.key}")[0] == 200


def test_a_browser_goes_on_with_a_cookie(server: Server, sandbox: Sandbox) -> None:
    link = sandbox.ports.link(8000)
    query = urlsplit(link.url).query
    status, headers, _ = ask(server, name_of(sandbox), f"/a/b?x=1&{query}&y=2")
    assert (status, headers["location"]) == (307, "/a/b?x=1&y=2")
    cookie = headers["set-cookie"].partition(";")[0]
    assert "HttpOnly" in headers["set-cookie"]
    assert json.loads(ask(server, name_of(sandbox), "/a/b", Cookie=cookie)[2])["path"] == "/a/b"
    assert code_of(ask(server, name_of(sandbox, 5432), Cookie=cookie)) == (403, "port_link_refused")


def test_links_expire_and_can_be_revoked(server: Server, sandbox: Sandbox) -> None:
    token = sandbox.ports.link(8000, expires_s=1).headers["X-Atoll-Token"]
    lasting = sandbox.ports.link(8000).headers["X-Atoll-Token"]
    assert ask(server, name_of(sandbox), X_Atoll_Token=lasting)[0] == 200
    refused = (403, "port_link_refused")
    wait_until(lambda: ask(server, name_of(sandbox), X_Atoll_Token=token)[0] == 403, 5, "the link expires")
    assert code_of(ask(server, name_of(sandbox), X_Atoll_Token=lasting[:-1] + "x")) == refused
    sandbox.ports.set_access(8000, revoke_links=True)
    assert code_of(ask(server, name_of(sandbox), X_Atoll_Token=lasting)) == refused
    assert ask(server, name_of(sandbox), X_Atoll_Token=sandbox.ports.link(8000).headers["X-Atoll-Token"])[0] == 200


def test_a_port_can_be_made_public_and_private_again(server: Server, sandbox: Sandbox) -> None:
    assert sandbox.ports.set_access(8000, public=True).public
    assert ask(server, name_of(sandbox))[0] == 200
    assert "atoll_token" not in sandbox.ports.url(8000)
    sandbox.ports.set_access(8000, public=False)
    assert code_of(ask(server, name_of(sandbox))) == (401, "port_private")
    assert not sandbox.ports.access(8000).public


# --- what a change ends ---


def hung_up(connection: socket.socket) -> bool:
    """Read until the other end has hung up; False if it does not within the connection's own time limit."""
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass  # cut is cut, with or without a farewell
    return True


def is_open(connection: socket.socket) -> bool:
    """Whether the WebSocket inside still answers."""
    connection.sendall(b"ping")
    heard = b""
    while b"PING" not in heard:
        part = connection.recv(100)
        if not part:
            return False
        heard += part
    return True


def test_a_change_of_access_cuts_what_is_open(server: Server, sandbox: Sandbox) -> None:
    """Within a second: who came as anybody and who came by a link. Who came by the owner's key stays."""
    host = name_of(sandbox)
    token = sandbox.ports.link(8000).headers["X-Atoll-Token"]
    by_link, _, _ = handshake(server, host, "/ws", X_Atoll_Token=token)
    by_key, _, _ = handshake(server, host, "/ws", X_API_Key=server.key)
    sandbox.ports.set_access(8000, public=True)
    by_nothing, _, _ = handshake(server, host, "/ws")
    with by_link, by_key, by_nothing:
        assert is_open(by_link)
        assert is_open(by_nothing)
        sandbox.ports.set_access(8000, public=False)
        assert hung_up(by_nothing)
        assert is_open(by_link)
        sandbox.ports.set_access(8000, revoke_links=True)
        assert hung_up(by_link)
        assert is_open(by_key)


def test_what_is_open_by_a_link_ends_with_it(server: Server, sandbox: Sandbox) -> None:
    """A connection that speaks something else, which could last for ever. An answer that has begun comes to its end."""
    host = name_of(sandbox)
    token = sandbox.ports.link(8000, expires_s=2).headers["X-Atoll-Token"]
    by_link, _, _ = handshake(server, host, "/ws", X_Atoll_Token=token)
    by_key, _, _ = handshake(server, host, "/ws", X_API_Key=server.key)
    address = urlsplit(server.url)
    with by_link, by_key, socket.create_connection((str(address.hostname), address.port), timeout=20) as answer:
        answer.sendall(f"GET /big HTTP/1.1\r\nHost: {host}\r\nX-Atoll-Token: {token}\r\n\r\n".encode())
        assert answer.recv(15) == b"HTTP/1.1 200 OK"
        assert is_open(by_link)
        assert hung_up(by_link)
        assert ask(server, host, X_Atoll_Token=token)[0] == 403
        assert is_open(by_key)
        got = 0
        while got < 20_000_000 and (part := answer.recv(1 << 20)):
            got += len(part)
        assert got >= 20_000_000


def test_a_revoked_key_takes_its_connections_with_it(server: Server, sandbox: Sandbox) -> None:
    """Through a port and through a tunnel. Positive control: another key's stay."""
    made = server.request("POST", "/v1/keys", json={"name": "short", "scopes": ["read", "write"]}).json()
    path = f"/v1/sandboxes/{sandbox.id}/ports/8000/tunnel"
    by_key, _, _ = handshake(server, name_of(sandbox), "/ws", X_API_Key=made["key"])
    by_tunnel, head, _ = handshake(server, "127.0.0.1", path, upgrade="atoll-tcp", X_API_Key=made["key"])
    by_other, _, _ = handshake(server, name_of(sandbox), "/ws", X_API_Key=server.key)
    with by_key, by_tunnel, by_other:
        assert head.startswith(b"HTTP/1.1 101 ")
        assert is_open(by_key)
        assert server.request("DELETE", f"/v1/keys/{made['view']['id']}").status_code < 300
        assert hung_up(by_key)
        assert hung_up(by_tunnel)
        assert is_open(by_other)


def test_an_answer_under_way_is_cut_too(server: Server, sandbox: Sandbox) -> None:
    """Also one whose reader has stopped reading."""
    sandbox.ports.set_access(8000, public=True)
    address = urlsplit(server.url)
    with socket.create_connection((str(address.hostname), address.port), timeout=10) as connection:
        connection.sendall(f"GET /big HTTP/1.1\r\nHost: {name_of(sandbox)}\r\n\r\n".encode())
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
        sandbox.ports.set_access(8000, public=False)
        connection.settimeout(5)
        got = 0
        try:
            while part := connection.recv(1 << 20):
                got += len(part)
        except ConnectionError:
            pass
        assert got < 20_000_000
    wait_until(lambda: len(ask(server, name_of(sandbox), "/", X_API_Key=server.key)[2]) > 0, 5)


def test_the_command_line_opens_and_closes_a_port(server: Server, sandbox: Sandbox) -> None:
    environment = {"ATOLL_URL": server.url, "ATOLL_API_KEY": server.key}

    def atoll(*arguments: str) -> str:
        done = CliRunner().invoke(port, arguments, env=environment, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    assert "8100" in atoll("ls", sandbox.id)
    assert "private" in atoll("access", sandbox.id, "8100")
    assert "public" in atoll("access", sandbox.id, "8100", "--public")
    assert ask(server, name_of(sandbox, 8100))[0] == 200
    assert not json.loads(atoll("access", sandbox.id, "8100", "--private", "--json"))["public"]
    query = urlsplit(atoll("url", sandbox.id, "8100", "--expires", "60").strip()).query
    assert ask(server, name_of(sandbox, 8100), f"/?{query}")[0] == 307
    atoll("access", sandbox.id, "8100", "--revoke-links")
    assert ask(server, name_of(sandbox, 8100), f"/?{query}")[0] == 403


# --- what the owner can read of it ---


def test_visits_and_refusals_are_in_the_audit_log(server: Server, sandbox: Sandbox) -> None:
    """A flood of the same is a few entries with a count; each says by which right, from where and how much."""
    host = name_of(sandbox, 8100)
    for _ in range(50):
        ask(server, host)
    ask(server, host, "/", "POST", b"x" * 1000, X_API_Key=server.key)
    sandbox.ports.set_access(8100, public=True)
    ask(server, host)

    def told() -> dict[tuple[str, str], list[dict[str, Any]]]:
        answer = server.request("GET", f"/v1/events?target={sandbox.id}&action=ingress.*&limit=1000")
        found: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for event in answer.json()["items"]:
            if event["detail"].get("port") == "8100":
                found.setdefault((event["result"], event["detail"].get("by", "")), []).append(event)
        return found

    wanted = {("port_private", ""), ("ok", "key"), ("ok", "public")}
    wait_until(lambda: set(told()) >= wanted, 10, "the log hears of it")
    refused = told()["port_private", ""]
    assert sum(int(event["detail"]["count"]) for event in refused) <= 50
    assert len(refused) <= 3
    (by_key,) = told()["ok", "key"]
    assert (by_key["source"], by_key["detail"]["bytes_in"]) == ("127.0.0.1", "1000")
    assert by_key["actor"].startswith("ak")
