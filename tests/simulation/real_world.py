"""A world on this machine: a real server with real sandboxes, killed with kill -9 and started again."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Collection, Mapping
from typing import Any

import httpx2

from atoll.model.errors import Conflict
from atoll.testing.server import Server
from tests.simulation.histories import RUNNING, Known
from tests.waiting import wait_until

SETTLED = (RUNNING, "killed", "failed")
SETTLE_S = 30
MOMENT_S = 0.002


class RealWorld:
    """One history on a server that has seen others before: only the sandboxes since its begin count."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._before = {row["id"] for row in server.rows()}

    def close(self) -> None:
        for sandbox_id, known in self.known().items():
            if known.state == RUNNING:
                self.kill(sandbox_id)

    def create(self, *, claim: bool) -> str:
        if claim:
            wait_until(lambda: self._server.status()["warm"]["base"]["live"] >= 1, 60, "one waits for an owner")
        sandbox = self._server.create(timeout_s=3600)
        assert sandbox.way == "pool" or not claim
        sandbox.close()
        return sandbox.id

    def write(self, sandbox_id: str, text: str) -> None:
        sandbox = self._server.connect(sandbox_id)
        sandbox.commands.run(["sh", "-c", 'printf %s "$0" > note', text], check=True)
        sandbox.close()

    def read(self, sandbox_id: str) -> str:
        sandbox = self._server.connect(sandbox_id)
        text = sandbox.commands.run("cat note", check=True).stdout
        sandbox.close()
        return text

    def refuses(self, sandbox_id: str) -> bool:
        try:
            self.read(sandbox_id)
        except Conflict as error:
            return error.code == "not_running"
        return False

    def kill(self, sandbox_id: str) -> None:
        assert self._server.request("DELETE", f"/v1/sandboxes/{sandbox_id}").status_code == 200

    def overrun(self, sandbox_id: str) -> None:
        answer = self._server.request("PUT", f"/v1/sandboxes/{sandbox_id}/deadline", json={"timeout_s": 1})
        assert answer.status_code == 200
        self._wait_ended(sandbox_id)

    def die(self, sandbox_id: str) -> None:
        self._kill_sentry(sandbox_id)
        self._wait_ended(sandbox_id)

    def _kill_sentry(self, sandbox_id: str) -> None:
        os.kill(self._server.entry_of(sandbox_id)["live"]["pid"], signal.SIGKILL)

    def _wait_ended(self, sandbox_id: str) -> None:
        wait_until(lambda: self.known()[sandbox_id].state != RUNNING, SETTLE_S, f"{sandbox_id} has ended")

    def crash(self, dying: Collection[str]) -> None:
        self._server.kill()
        for sandbox_id in dying:
            self._kill_sentry(sandbox_id)
        self._server.start()
        for sandbox_id in dying:
            self._wait_ended(sandbox_id)

    def crash_during_create(self, moment: int) -> None:
        self._crash_during("POST", "/v1/sandboxes", moment, {"template": "base", "timeout_s": 3600})

    def crash_during_kill(self, sandbox_id: str, moment: int) -> None:
        self._crash_during("DELETE", f"/v1/sandboxes/{sandbox_id}", moment)

    def _crash_during(self, method: str, path: str, moment: int, body: dict[str, object] | None = None) -> None:
        def ask() -> None:
            try:
                self._server.request(method, path, json=body)
            except httpx2.TransportError:
                return  # the server died before it answered

        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(moment * MOMENT_S)  # the moment of the crash, not a wait for anything
        self._server.kill()
        asking.join()
        self._server.start()

    def known(self) -> Mapping[str, Known]:
        wait_until(lambda: all(row["state"] in SETTLED for row in self._rows()), SETTLE_S, "nothing is under way")
        return {row["id"]: Known(row["state"], row["end_reason"]) for row in self._rows()}

    def _rows(self) -> list[dict[str, Any]]:
        return [row for row in self._server.rows() if row["id"] not in self._before]

    def present(self) -> Collection[str]:
        """By the host itself: every box that has left a trace on it and belongs to a sandbox, or to nobody at all."""
        running = {one for one, known in self.known().items() if known.state == RUNNING}
        wait_until(lambda: set(self._journal().values()) - {""} == running, SETTLE_S, "only those that run are there")
        wait_until(lambda: self._server.boxes() <= set(self._journal()), SETTLE_S, "no box without an entry")
        return running

    def _journal(self) -> dict[str, str]:
        """The sandbox of each box on record; none of one that waits for an owner."""
        return {entry["box_id"]: entry["sandbox_id"] for entry in self._server.journal()}
