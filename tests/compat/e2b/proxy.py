"""A forward proxy that wants a name and a password: a process of its own, which tells what went through it.

It passes plain requests on one by one and opens tunnels for TLS. `GET /seen` to itself lists where they went.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

NAME, PASSWORD = "ada", "word"
_EXPECTED = b"basic " + base64.b64encode(f"{NAME}:{PASSWORD}".encode())
_CHUNK_BYTES = 65536
_seen: list[str] = []


class _Visit(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            head, rest = _head(self.request)
            method, target, _ = head[0].split(" ")
            if target == "/seen":
                self.request.sendall(_answer("200 OK", "".join(f"{line}\n" for line in _seen)))
            elif not _is_known(head):
                self.request.sendall(_answer("407 Proxy Authentication Required", "", "Proxy-Authenticate: Basic"))
            else:
                self._pass_on(method, target, head, rest)

    def _pass_on(self, method: str, target: str, head: list[str], rest: bytes) -> None:
        _seen.append(f"{method} {target}")
        if method == "CONNECT":
            host, _, port = target.rpartition(":")
            first = b""
        else:
            url = urlsplit(target)
            host, port = url.hostname or "", str(url.port or 80)
            path = url.path + (f"?{url.query}" if url.query else "")
            kept = [line for line in head[1:] if not line.lower().startswith(("proxy-", "connection:"))]
            first = "\r\n".join([f"{method} {path} HTTP/1.1", *kept, "Connection: close", "", ""]).encode() + rest
        # Names of sandboxes are this machine, whatever its resolver knows.
        with socket.create_connection(("127.0.0.1" if host.endswith(".localhost") else host, int(port))) as server:
            if method == "CONNECT":
                self.request.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            server.sendall(first)
            back = threading.Thread(target=_pump, args=(server, self.request))
            back.start()
            _pump(self.request, server)
            back.join()


def _head(client: socket.socket) -> tuple[list[str], bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        more = client.recv(_CHUNK_BYTES)
        if not more:
            raise ValueError("no request")
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    return head.decode("latin-1").split("\r\n"), rest


def _is_known(head: list[str]) -> bool:
    shown = [line.partition(":")[2].strip() for line in head if line.lower().startswith("proxy-authorization:")]
    return any(value.lower()[:6] == "basic " and value[6:].encode() == _EXPECTED[6:] for value in shown)


def _answer(status: str, body: str, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", body]
    return "\r\n".join(lines).encode()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextlib.contextmanager
def proxy() -> Iterator[dict[str, str]]:
    """The variables that programs find it by."""
    with subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            place = f"127.0.0.1:{int(process.stdout.readline())}"
            yield {"PROXY": f"http://{place}", "PROXY_URL": f"http://{NAME}:{PASSWORD}@{place}"}
        finally:
            process.kill()


if __name__ == "__main__":
    with _Server(("127.0.0.1", 0), _Visit) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()
