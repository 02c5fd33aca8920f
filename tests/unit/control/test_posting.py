"""Posting to addresses that strangers have chosen."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import anyio
import pytest

from atoll.control.posting import Post, Poster, is_public
from atoll.model import limits

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "255.255.255.255", "::1", "::", "fe80::1%eth0", "fc00::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
        "64:ff9b::7f00:1", "2002:7f00:1::", "ff02::1", "nonsense",
    ],
)  # fmt: skip
def test_private_addresses_in_every_notation(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "64:ff9b::101:101"])
def test_public_addresses(address: str) -> None:
    assert is_public(address)


class Receiver(BaseHTTPRequestHandler):
    """Answers with what the path says."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.got.append((dict(self.headers), body))  # type: ignore[attr-defined]
        if self.path == "/redirect":
            self.send_response(302)
            self.send_header("location", "/200")
        else:
            self.send_response(int(self.path[1:]))
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    server.got = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


async def test_a_private_address_is_refused_for_good_unless_the_operator_allows_it(receiver: Any) -> None:
    for host in ("127.0.0.1", "localhost", "2130706433", "0x7f.1"):
        post = Post(f"http://{host}:{receiver.server_port}/200", {"x-a": "b"}, b"{}")
        refused = await Poster(private_allowed=False).send(post)
        assert refused.status is None
        assert refused.final or "gaierror" in refused.error
    assert receiver.got == []
    post = Post(f"http://localhost:{receiver.server_port}/200", {"x-a": "b"}, b"{}")
    sent = await Poster(private_allowed=True).send(post)
    assert sent.status == 200
    ((headers, body),) = receiver.got
    assert (headers["x-a"], headers["host"], body) == ("b", f"localhost:{receiver.server_port}", b"{}")


async def test_redirects_are_not_followed_and_failures_are_told(receiver: Any) -> None:
    poster = Poster(private_allowed=True)
    base = f"http://127.0.0.1:{receiver.server_port}"
    assert (await poster.send(Post(base + "/redirect", {}, b""))).status == 302
    assert (await poster.send(Post(base + "/500", {}, b""))).status == 500
    assert len(receiver.got) == 2
    nobody = await poster.send(Post("http://127.0.0.1:1/", {}, b""))
    assert nobody.status is None
    assert nobody.error


async def test_a_receiver_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WEBHOOK_S_MAX", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with anyio.fail_after(5):
            posted = await Poster(private_allowed=True).send(
                Post(f"http://127.0.0.1:{silent.getsockname()[1]}/", {}, b"")
            )
    assert posted.status is None
    assert not posted.final


async def test_an_address_that_no_request_can_be_made_for_is_given_up() -> None:
    """Else it would be tried for ever, and with it everything that its webhook is to hear."""
    with anyio.fail_after(5):
        posted = await Poster(private_allowed=True).send(Post("http://127.0.0.1/\x01", {}, b""))
    assert (posted.status, posted.final) == (None, True)
