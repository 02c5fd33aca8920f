"""A real server whose database is locked by somebody else for longer than it waits."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real


def test_a_locked_database_is_a_clear_refusal_and_then_all_goes_on(server: Server) -> None:
    """What needs no write goes on; what does is refused with a code; what was due meanwhile is done afterwards."""
    with server.create(timeout_s=600) as sandbox:
        doomed = server.create(timeout_s=1)
        with closing(sqlite3.connect(server.data / "atoll.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert sandbox.commands.run("echo on").stdout == "on\n"
            refused = server.request("POST", "/v1/sandboxes", json={"template": "base"})
            other.execute("ROLLBACK")
        assert (refused.status_code, refused.json()["code"]) == (503, "database_unavailable")
        wait_until(lambda: doomed.info().state == "killed", 20, "its deadline came while the database was locked")
        assert doomed.info().end_reason == "deadline"
        assert server.create().commands.run("echo fine").stdout == "fine\n"
        running = {row["id"] for row in server.rows() if row["state"] == "running"}
        wait_until(lambda: len(server.boxes()) == len(running), 10, "host and database agree")
