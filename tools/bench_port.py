"""A request to a published port, beside the same request to the port itself."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

from bench_row import Row, p50, timed_ms

from atoll import Sandbox
from atoll.node.names import HostNames
from atoll.node.network.netns import Network
from atoll.node.network.plan import INNER_ADDRESS, Pair
from atoll.testing.server import Server

PORT = 8000
SERVER = f"""
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer(("0.0.0.0", {PORT}), Handler).serve_forever()
"""


def port(server: Server, rounds: int) -> Iterator[Row]:
    """One request on one connection each, both ways in turn, so that a busy machine slows both."""
    with server.create("base") as sandbox:
        _serve_inside(sandbox)
        sandbox.ports.set_access(PORT, public=True)
        network = Network(Pair.of(HostNames.of(server.data), server.entry_of(sandbox.id)["slot"]))
        ours: list[float] = []
        itself: list[float] = []
        try:
            for _ in range(rounds * 5):
                ours.append(timed_ms(lambda: _published(server.url, sandbox.id)))
                itself.append(timed_ms(lambda: _direct(network)))
        finally:
            network.close()
    more_ms = p50(ours) - p50(itself)
    yield Row("request to a port", p50(ours), p50(itself), "ms", "2 ms more than itself", more_ms <= 2)


def _serve_inside(sandbox: Sandbox) -> None:
    sandbox.files.write("server.py", SERVER)
    sandbox.commands.start(["python3", "server.py"])
    probe = f"import socket; socket.create_connection(('127.0.0.1', {PORT})).close()"
    while sandbox.commands.run(["python3", "-c", probe]).exit_code != 0:
        time.sleep(0.05)


def _published(url: str, sandbox_id: str) -> None:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port)
    _exchange(connection, {"Host": f"{PORT}-{sandbox_id}.localhost"})


def _direct(network: Network) -> None:
    connection = http.client.HTTPConnection(INNER_ADDRESS, PORT)
    connection.sock = network.socket_open()
    connection.sock.setblocking(True)
    connection.sock.connect((INNER_ADDRESS, PORT))
    _exchange(connection, {})


def _exchange(connection: http.client.HTTPConnection, headers: dict[str, str]) -> None:
    connection.request("GET", "/", headers=headers)
    body = connection.getresponse().read()
    connection.close()
    assert body == b"ok", body
