"""Ports over TLS: by the server's own CA, by HTTP/1.1 and by HTTP/2, with real clients and with hostile ones."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import h2.errors
import httpx2
import pytest

from atoll import Sandbox
from atoll.testing.server import Server
from tests import http2_acts
from tests.http2_client import Http2Client
from tests.ingress_stage import handshake, inside, name_of

pytestmark = pytest.mark.real

Codes = h2.errors.ErrorCodes


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def server(make_data_dir: Callable[[], Path]) -> Iterator[Server]:
    server = Server(make_data_dir(), {"ATOLL_TLS": "1"})
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def ca(server: Server) -> Path:
    return server.data / "ca" / "ca.pem"


@pytest.fixture(scope="module")
def sandbox(server: Server, ca: Path) -> Iterator[Sandbox]:
    os.environ["ATOLL_CA"] = str(ca)
    try:
        with server.create() as sandbox:
            yield inside(sandbox)
    finally:
        del os.environ["ATOLL_CA"]


@pytest.fixture
def client(server: Server, ca: Path) -> Iterator[Http2Client]:
    with Http2Client(server.url, ca) as client:
        yield client


def web(server: Server, ca: Path) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        base_url=server.url,
        http2=True,
        verify=ssl.create_default_context(cafile=str(ca)),
        trust_env=False,
        timeout=30,
        headers={"X-API-Key": server.key},
    )


def host_of(server: Server, sandbox: Sandbox, port: int = 8000) -> str:
    return f"{name_of(sandbox, port)}:{urlsplit(server.url).port}"


def test_every_name_under_the_domain_is_trusted_and_no_other(server: Server, sandbox: Sandbox, ca: Path) -> None:
    url = sandbox.ports.url(8000)
    assert url.startswith(f"https://{name_of(sandbox)}:")
    context = ssl.create_default_context(cafile=str(ca))
    address = urlsplit(server.url)
    for name in (name_of(sandbox), "localhost"):
        with socket.create_connection((str(address.hostname), address.port), timeout=10) as plain:
            context.wrap_socket(plain, server_hostname=name).close()
    with socket.create_connection((str(address.hostname), address.port), timeout=10) as plain:
        with pytest.raises(ssl.SSLCertVerificationError):
            context.wrap_socket(plain, server_hostname="www.example.org")


def test_websocket_stays_on_http1(server: Server, sandbox: Sandbox, ca: Path) -> None:
    """As clients choose it for that: no protocol is offered in TLS, or HTTP/1.1 only."""
    context = ssl.create_default_context(cafile=str(ca))
    for offered in ([], ["http/1.1"]):
        context.set_alpn_protocols(offered)
        connection, head, _ = handshake(server, name_of(sandbox), "/ws", tls=context, X_API_Key=server.key)
        with connection:
            assert head.startswith(b"HTTP/1.1 101 ")
            connection.sendall(b"some frame")
            heard = b""
            while b"SOME FRAME" not in heard:
                part = connection.recv(100)
                assert part
                heard += part


def test_a_terminal_trusts_the_same_ca_as_requests(sandbox: Sandbox) -> None:
    """A WebSocket of the SDK: the server's own CA is the only one that vouches for it."""
    with sandbox.terminals.open(["echo", "over TLS"]) as terminal:
        assert b"over TLS" in b"".join(terminal)
    assert terminal.exited is not None
    assert terminal.exited.exit_code == 0


def test_curl_speaks_http2_to_a_port(server: Server, sandbox: Sandbox, ca: Path) -> None:
    """With a signed address: the redirect, the cookie and the page. Positive control: HTTP/1.1 where that is asked."""
    url = sandbox.ports.url(8000)
    for flag, version in (("--http2", b"2"), ("--http1.1", b"1.1")):
        argv = ["curl", "-sS", flag, "-L", "-c", "/dev/null", "--cacert", str(ca), "-w", "\n%{http_version}", url]
        said, _, spoken = subprocess.run(argv, capture_output=True, timeout=20, check=True).stdout.rpartition(b"\n")
        told = json.loads(said)["headers"]
        assert spoken == version
        assert (told["host"], told["x-forwarded-proto"]) == ("localhost:8000", "https")
        assert "cookie" not in told


@pytest.mark.anyio
async def test_many_requests_at_once_on_one_connection(server: Server, sandbox: Sandbox, ca: Path) -> None:
    paths: list[str] = []
    async with web(server, ca) as client, anyio.create_task_group() as tasks:
        client.headers["Host"] = host_of(server, sandbox)

        async def ask(number: int) -> None:
            answer = await client.get(f"/n{number}")
            assert answer.http_version == "HTTP/2"
            assert answer.json()["path"] == f"/n{number}"
            paths.append(answer.json()["path"])

        await ask(0)
        for number in range(1, 60):
            tasks.start_soon(ask, number)
    assert len(set(paths)) == 60


@pytest.mark.anyio
async def test_large_bodies_pass_both_ways(server: Server, sandbox: Sandbox, ca: Path) -> None:
    """With a length and without one, up; twenty megabytes down."""
    data = os.urandom(5_000_000)
    told = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, len(data), 100_000):
            yield data[start : start + 100_000]

    async with web(server, ca) as client:
        client.headers["Host"] = host_of(server, sandbox)
        assert (await client.post("/", content=data)).json() == told
        assert (await client.post("/", content=parts())).json() == told
        assert len((await client.get("/big")).content) == 20_000_000


def test_bodies_are_streamed_while_they_are_answered(server: Server, sandbox: Sandbox, client: Http2Client) -> None:
    stream = client.ask(host_of(server, sandbox), "/echo", "POST", end=False, X_API_Key=server.key)
    for word, heard in ((b"one", b"ONE"), (b"two", b"ONETWO"), (b"six", b"ONETWOSIX")):
        client.send(stream, word)
        while client.body[stream] != heard:
            client.hear()
    client.send(stream, b"", end=True)
    assert client.hear_all(stream) == (200, b"ONETWOSIX")


def test_answers_that_are_none_or_cut_off(server: Server, sandbox: Sandbox, client: Http2Client) -> None:
    """A cut answer is a reset of its stream and of no other; what is wrong is told as in HTTP/1.1."""
    host = host_of(server, sandbox)
    own: dict[str, Any] = {"X_API_Key": server.key}
    assert client.hear_all(client.ask(host, "/raw/short", **own))[0] == 0
    assert client.hear_all(client.ask(host, "/raw/304", **own)) == (304, b"")
    assert client.hear_all(client.ask(host, "/raw/until-end", **own)) == (200, b"ok")
    assert client.hear_all(client.ask(host, "/x", "HEAD", **own)) == (200, b"")
    for port, code in ((8001, "port_closed"), (999, "port_reserved")):
        status, body = client.hear_all(client.ask(host_of(server, sandbox, port), **own))
        assert (json.loads(body)["code"], status >= 400) == (code, True)
    status, body = client.hear_all(client.ask(host))
    assert (status, json.loads(body)["code"]) == (401, "port_private")


def test_the_rest_of_a_refused_upload_is_not_wanted(server: Server, sandbox: Sandbox, client: Http2Client) -> None:
    """And does not take the room of those that are: the refused bodies are more than all windows together."""
    host = host_of(server, sandbox)
    for _ in range(40):
        stream = client.ask(host, "/", "POST", end=False)
        client.send(stream, bytes(200_000))
        assert client.hear_all(stream)[0] == 401
    stream = client.ask(host, "/", "POST", end=False, X_API_Key=server.key)
    client.send(stream, bytes(1_000_000), end=True)
    assert json.loads(client.hear_all(stream)[1])["size"] == 1_000_000


def test_a_stream_that_is_not_read_holds_up_no_other(server: Server, sandbox: Sandbox, client: Http2Client) -> None:
    host = host_of(server, sandbox)
    client.state.increment_flow_control_window(10_000_000)  # of the connection: only the stream's own window is small
    client.reads_bodies = False
    stalled = client.ask(host, "/big", X_API_Key=server.key)
    while len(client.body[stalled]) < 65535:
        client.hear()
    client.reads_bodies = True
    for number in range(5):
        status, body = client.hear_all(client.ask(host, f"/n{number}", X_API_Key=server.key))
        assert (status, json.loads(body)["path"]) == (200, f"/n{number}")
    assert len(client.body[stalled]) == 65535
    client.state.increment_flow_control_window(20_000_000, stalled)
    client.flush()
    assert client.hear_all(stalled) == (200, b"x" * 20_000_000)


@pytest.mark.anyio
async def test_the_api_speaks_it_too(server: Server, sandbox: Sandbox, ca: Path) -> None:
    async with web(server, ca) as client:
        answer = await client.get(f"/v1/sandboxes/{sandbox.id}")
        assert (answer.http_version, answer.json()["id"]) == ("HTTP/2", sandbox.id)
        assert (await client.post(f"/v1/sandboxes/{sandbox.id}/ports/8000/link", json={})).status_code == 200
        assert (await client.get("/nowhere")).status_code == 404


@pytest.mark.parametrize(
    "changes",
    [
        {":path": "/ HTTP/1.1\r\nX-Injected: 1"},
        {":path": "//\x7f"},
        {":path": "elsewhere"},
        {":method": "CONNECT"},
        {":method": "GET /x"},
        {":scheme": "http"},
        {"host": "other.localhost"},
        {":authority": "a b"},
        {"x-long": "y" * 70_000},
        {"transfer-encoding": "chunked"},
        {"x-a": "a\r\nx-b: b"},
    ],
)
def test_heads_that_no_honest_client_sends(server: Server, sandbox: Sandbox, ca: Path, changes: dict[str, str]) -> None:
    """A reset of the stream or an end of the connection; nothing of it gets inside. Positive control: without it."""
    host = host_of(server, sandbox)
    honest = {":method": "GET", ":scheme": "https", ":authority": host, ":path": "/", "x-api-key": server.key}
    with Http2Client(server.url, ca, honest=False) as client:
        assert client.hear_all(client.ask_raw(list(honest.items())))[0] == 200
        stream = client.ask_raw(list((honest | changes).items()))
        while stream not in client.reset and client.goodbye is None and not client.closed:
            client.hear()
        assert stream not in client.heads


def test_who_opens_streams_only_to_drop_them_is_hung_up_on(server: Server, sandbox: Sandbox, ca: Path) -> None:
    """Positive control: a few are bad luck, as when a page is left."""
    with Http2Client(server.url, ca) as client:
        for _ in range(20):
            client.give_up(client.ask(host_of(server, sandbox), "/slow", X_API_Key=server.key))
        client.flush()
        assert client.hear_all(client.ask(host_of(server, sandbox), "/go", X_API_Key=server.key)) == (200, b"gone")
    with Http2Client(server.url, ca) as client:
        for _ in range(300):
            client.give_up(client.ask("localhost", "/health"))
        client.flush()
        while not client.closed and client.goodbye is None:
            client.hear()
        assert client.goodbye in (Codes.ENHANCE_YOUR_CALM, None)
    assert server.request("GET", "/health").status_code == 200


@pytest.mark.parametrize("flood", ["kinds", "priorities", "pings", "strangers"])
def test_who_says_much_and_asks_for_nothing_is_hung_up_on(server: Server, ca: Path, flood: str) -> None:
    """Positive control: what an honest client says beside its requests, a hundred times over."""
    with Http2Client(server.url, ca) as client:
        for turn in range(100):
            stream = client.ask("localhost", "/health")
            for _ in range(5):
                client.state.prioritize(stream, weight=turn + 1)
            client.state.ping(b"are you?")
            client.flush()
            assert client.hear_all(stream)[0] == 200
    with Http2Client(server.url, ca) as client:
        http2_acts.act(client.socket, flood, 30.0)
        client.socket.settimeout(20)
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while not client.closed and client.goodbye is None:
                client.hear()
            assert client.goodbye in (Codes.ENHANCE_YOUR_CALM, None)
    assert server.request("GET", "/health").status_code == 200
