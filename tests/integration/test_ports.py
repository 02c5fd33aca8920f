"""Ports inside a real sandbox: listed with their process, waited for, and watched."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from atoll.model.errors import DeadlineExceeded
from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real


def test_ports_are_listed_waited_for_and_watched(server: Server) -> None:
    with server.create("base") as sandbox:
        assert sandbox.ports.list() == []
        seen: list[Any] = []
        begun, closed = threading.Event(), threading.Event()

        def watch() -> None:
            for event in server.connect(sandbox.id).ports.watch():
                seen.append(event)
                begun.set()
                if type(event).__name__ == "PortClosed":
                    closed.set()
                    return

        watcher = threading.Thread(target=watch)
        watcher.start()
        assert begun.wait(10)
        process = sandbox.commands.start(["python3", "-m", "http.server", "8123", "--bind", "127.0.0.1"])
        found = sandbox.ports.wait(8123, timeout_s=20)
        assert (found.port, found.address, found.pid) == (8123, "127.0.0.1", process.pid)
        assert [port.port for port in sandbox.ports.list()] == [8123]
        wait_until(lambda: len(seen) == 2, 10, "the watcher has seen it open")
        process.kill()
        assert closed.wait(10)
        watcher.join()
        assert [type(event).__name__ for event in seen] == ["PortsListening", "PortOpened", "PortClosed"]
        with pytest.raises(DeadlineExceeded):
            sandbox.ports.wait(8124, timeout_s=0.3)
        assert server.request("GET", f"/v1/sandboxes/{sandbox.id}/ports/x").json()["code"] == "invalid_port"
