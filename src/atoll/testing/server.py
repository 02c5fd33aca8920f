"""A real server under test: started as a user starts it, killed as bad luck kills it, and looked at from outside."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2

from atoll import Sandbox
from atoll.node import cgroups, inventory
from atoll.node.install.layout import Layout
from atoll.node.inventory import Item
from atoll.node.names import HostNames

START_S_MAX = 30.0


class Server:
    """`atoll serve` on a data directory of its own and a free port."""

    module = "atoll"

    def __init__(self, data: Path, environment: dict[str, str]) -> None:
        self.data = data
        self.log_path = data / "server.log"
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    @property
    def key(self) -> str:
        return (self.data / "key").read_text().strip()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *flags: str) -> None:
        # No pool unless a test asks for one: it would make sandboxes that the test does not know of.
        environment = {**os.environ, "ATOLL_DATA": str(self.data), "ATOLL_WARM_SIZE": "0", **self._environment}
        environment.pop("ATOLL_URL", None)
        # A server that is started again and again must not compile itself each time: that is most of its start.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment.setdefault("PYTHONPYCACHEPREFIX", str(Layout.from_environment().cache / "pycache"))
        program = [sys.executable, "-m", self.module, "serve", "--listen", "127.0.0.1:0", "--data", str(self.data)]
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(
                [*program, *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )
        self._wait_serving()

    def _wait_serving(self) -> None:
        deadline_s = time.monotonic() + START_S_MAX
        assert self._process is not None
        while time.monotonic() < deadline_s:
            if self._process.poll() is not None:
                raise AssertionError(f"the server ended: {self.log()[-3000:]}")
            try:
                found = json.loads((self.data / "server.json").read_text())
                if found["pid"] == self.pid and self._answers(found["url"]):
                    self.url = found["url"]
                    return
            except (OSError, ValueError, httpx2.TransportError):
                pass  # not there yet, or half written
            time.sleep(0.02)
        self.kill()
        raise AssertionError(f"the server does not serve: {self.log()[-3000:]}")

    def wait_dead(self) -> None:
        """Until it has ended by something that was done to it."""
        assert self._process is not None
        self._process.wait(30)

    def kill(self) -> None:
        """kill -9, and nothing else."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(10)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(30)

    def close(self) -> None:
        """End all of it. What is left afterwards is a leak, and fails the test."""
        assert self._process is not None
        if self._process.poll() is not None:
            self.start()
        for sandbox in self.sandboxes():
            self.request("DELETE", f"/v1/sandboxes/{sandbox['id']}")  # the SDK would not know the server's own CA
        self.stop()
        left = [item for item in self.inventory() if item.box]
        assert not left, left

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def inventory(self) -> list[Item]:
        return inventory.survey(HostNames.of(self.data), cgroups.detect())

    def boxes(self) -> set[str]:
        """The boxes that have left any trace on the host."""
        return {item.box for item in self.inventory() if item.box.startswith("bx")}

    def box_of(self, sandbox_id: str) -> str:
        """The box that a sandbox lives in, from the journal."""
        return str(self.entry_of(sandbox_id)["box_id"])

    def entry_of(self, sandbox_id: str) -> dict[str, Any]:
        for entry in self.journal():
            if entry["sandbox_id"] == sandbox_id:
                return entry
        raise AssertionError(f"{sandbox_id} has no journal entry")

    def journal(self) -> list[dict[str, Any]]:
        """The boxes on record. What is taken down meanwhile is not among them."""
        found = []
        for path in (self.data / "journal").glob("*.json"):
            with contextlib.suppress(FileNotFoundError):
                found.append(json.loads(path.read_text()))
        return found

    def rows(self) -> list[dict[str, Any]]:
        """What the database says, read behind the server's back."""
        database = sqlite3.connect(f"file:{self.data}/atoll.db?mode=ro", uri=True)
        database.row_factory = sqlite3.Row
        try:
            return [dict(row) for row in database.execute("select * from sandboxes order by id")]
        finally:
            database.close()

    def sandboxes(self) -> list[dict[str, Any]]:
        """All that run."""
        found: list[dict[str, Any]] = []
        cursor: str | None = ""
        while cursor is not None:
            page = self.request("GET", f"/v1/sandboxes?state=running&limit=200{cursor and '&cursor='}{cursor}").json()
            found += page["items"]
            cursor = page["next"]
        return found

    def status(self) -> Any:
        """What the machine has, as the server says it."""
        return self.request("GET", "/v1/node").json()

    def request(self, method: str, path: str, **options: Any) -> httpx2.Response:
        headers = {"authorization": f"Bearer {self.key}", **options.pop("headers", {})}
        return httpx2.request(
            method, self.url + path, headers=headers, timeout=60, verify=self._verify(), trust_env=False, **options
        )

    def _answers(self, url: str) -> bool:
        return httpx2.get(f"{url}/health", verify=self._verify(), trust_env=False).status_code == 200

    def _verify(self) -> ssl.SSLContext | bool:
        """The server's own CA, where it serves with TLS."""
        ca = self.data / "ca" / "ca.pem"
        return ssl.create_default_context(cafile=ca) if ca.exists() else False

    def create(self, template: str = "base", **options: Any) -> Sandbox:
        return Sandbox.create(template, url=self.url, api_key=self.key, **options)

    def connect(self, reference: str) -> Sandbox:
        return Sandbox.connect(reference, url=self.url, api_key=self.key)
