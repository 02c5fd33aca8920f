"""A place that package managers and git talk to, over HTTPS and only with the right token: a Python index, an npm
registry, and a git repository by smart HTTP. It stands beside the servers of `tests.upstream`, on an address of theirs.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import io
import json
import os
import socket
import ssl
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests import upstream

PORT = 7443
BASE = f"https://good.test:{PORT}"
WORD = "word-from-outside"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    place: Registries

    def do_GET(self) -> None:
        shown = self.headers.get("Authorization", "")
        scheme, _, rest = shown.partition(" ")
        if scheme.lower() == "basic":
            shown = base64.b64decode(rest).decode()
        self.place.seen.append((self.path, shown))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.place.token not in shown:
            self._say(401, b"who are you", "text/plain", ("WWW-Authenticate", 'Basic realm="place"'))
        elif self.path.startswith("/repo.git/"):
            self._git(body)
        elif self.path in self.place.pages:
            self._say(200, *self.place.pages[self.path])
        else:
            self._say(404, b"nothing here", "text/plain")

    do_POST = do_GET

    def _say(self, status: int, body: bytes, kind: str, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(body))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _git(self, body: bytes) -> None:
        """As a web server runs git's own program."""
        path, _, query = self.path.partition("?")
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.place.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        ran = subprocess.run(["git", "http-backend"], input=body, capture_output=True, env=environment, check=True)
        head, _, answer = ran.stdout.partition(b"\r\n\r\n")
        lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self._say(int(lines.get("Status", "200")[:3]), answer, lines["Content-Type"])

    def log_message(self, *_: object) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, context: ssl.SSLContext, handler: type[_Handler]) -> None:
        self._context = context
        super().__init__((upstream.WEB, PORT), handler)

    def finish_request(self, request: Any, client_address: Any) -> None:
        with contextlib.suppress(OSError), self._context.wrap_socket(request, server_side=True) as tls:
            super().finish_request(tls, client_address)

    def shutdown_request(self, request: Any) -> None:
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)
        request.close()


class Registries:
    """`seen` is what was asked for, with the credentials that came along."""

    def __init__(self, folder: Path, leaf: Path, token: str) -> None:
        self.folder = folder
        self.token = token
        self.seen: list[tuple[str, str]] = []
        self.pages = {"/hello": (WORD.encode(), "text/plain"), **_python_index(), **_npm_registry()}
        _git_repository(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(leaf)
        self._server = _Server(context, type("Handler", (_Handler,), {"place": self}))
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def registries(folder: Path, leaf: Path, token: str) -> Iterator[Registries]:
    """The place, for as long as the servers of `tests.upstream` have their addresses."""
    place = Registries(folder, leaf, token)
    try:
        yield place
    finally:
        place.close()


def _python_index() -> dict[str, tuple[bytes, str]]:
    name = "atollprobe-1.0-py3-none-any.whl"
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("atollprobe.py", f"WORD = {WORD!r}\n")
        about = "atollprobe-1.0.dist-info"
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: atollprobe\nVersion: 1.0\n")
        archive.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{about}/RECORD", f"atollprobe.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n")
    page = f'<!DOCTYPE html><html><body><a href="/wheels/{name}">{name}</a></body></html>'
    return {
        "/simple/atollprobe/": (page.encode(), "text/html"),
        f"/wheels/{name}": (wheel.getvalue(), "application/octet-stream"),
    }


def _npm_registry() -> dict[str, tuple[bytes, str]]:
    packed = io.BytesIO()
    files = {
        "package/package.json": json.dumps({"name": "atollprobe", "version": "1.0.0", "main": "index.js"}),
        "package/index.js": f"module.exports = {json.dumps(WORD)};\n",
    }
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    tarball = packed.getvalue()
    path = "/npm/atollprobe/-/atollprobe-1.0.0.tgz"
    dist = {"tarball": BASE + path, "shasum": hashlib.sha1(tarball, usedforsecurity=False).hexdigest()}
    version = {"name": "atollprobe", "version": "1.0.0", "main": "index.js", "dist": dist}
    about = {"name": "atollprobe", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    return {
        "/npm/atollprobe": (json.dumps(about).encode(), "application/json"),
        path: (tarball, "application/octet-stream"),
    }


def _git_repository(folder: Path) -> None:
    work = folder / "work"
    work.mkdir()
    (work / "word").write_text(WORD)
    own = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    who = ["-c", "user.name=t", "-c", "user.email=t@test"]
    for argv in (
        ["init", "-q", "-b", "main", "."],
        ["add", "."],
        [*who, "commit", "-q", "-m", "word"],
        ["clone", "-q", "--bare", ".", str(folder / "repo.git")],
    ):
        subprocess.run(["git", *argv], cwd=work, env=own, check=True, capture_output=True)
