"""Kills at the worst moment: of the server, of a sandbox's sentry, of its guest. Nothing is lost, nothing is left."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable

import httpx2
import pytest

from atoll.model.errors import AtollError
from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real

MakeServer = Callable[..., Server]


def test_a_sandbox_outlives_a_kill_of_the_server(make_server: MakeServer) -> None:
    """The same id, the same processes, the same files; and it answers."""
    server = make_server()
    sandbox = server.create(timeout_s=600, env={"KEPT": "yes"})
    counter = sandbox.commands.start("i=0; while true; do i=$((i+1)); echo $i > count; sleep 0.01; done")
    sandbox.files.write("note.txt", "before")
    server.kill()
    server.start()
    again = server.connect(sandbox.id)
    assert again.files.read("note.txt") == "before"
    first = int(again.files.read("count") or 0)
    wait_until(lambda: int(again.files.read("count") or 0) > first, 5, "the loop still runs")
    assert counter.pid in [view.pid for view in again.commands.list()]
    assert again.commands.run("echo $KEPT").stdout == "yes\n"
    again.kill()
    wait_until(lambda: not server.boxes(), 5, "nothing of it is left")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_kill_at_any_moment_of_a_create_leaves_nothing_half_made(make_server: MakeServer) -> None:
    """Kill the server some milliseconds into a create, again and again, until the moments cover all of it."""
    server = make_server()
    for delay_ms in (2, 10, 30, 60, 100, 180):
        attempt = threading.Thread(target=_create_quietly, args=(server,))
        attempt.start()
        time.sleep(delay_ms / 1000)
        server.kill()
        attempt.join()
        server.start()
        agrees(server)


def _create_quietly(server: Server) -> None:
    try:
        server.create(timeout_s=600)
    except AtollError:
        return


def agrees(server: Server) -> None:
    """The host has exactly the boxes of the sandboxes that the database calls running."""
    wait_until(lambda: all(row["state"] in ("running", "failed", "killed") for row in server.rows()), 5)
    running = [row["id"] for row in server.rows() if row["state"] == "running"]
    wait_until(lambda: len(server.boxes()) == len(running), 5, "what was half made is gone")
    for sandbox_id in running:
        assert server.connect(sandbox_id).commands.run("echo alive").stdout == "alive\n"
        server.connect(sandbox_id).kill()


@pytest.mark.slow
def test_a_kill_during_a_kill_is_finished_by_the_next_start(make_server: MakeServer) -> None:
    server = make_server()
    for delay_ms in (1, 4, 10, 20, 40):
        sandbox = server.create(timeout_s=600)
        attempt = threading.Thread(target=_kill_quietly, args=(server, sandbox.id))
        attempt.start()
        time.sleep(delay_ms / 1000)
        server.kill()
        attempt.join()
        server.start()
        agrees(server)


def _kill_quietly(server: Server, sandbox_id: str) -> None:
    try:
        server.request("DELETE", f"/v1/sandboxes/{sandbox_id}")
    except httpx2.TransportError:
        return


def test_a_killed_sentry_is_a_failed_sandbox(make_server: MakeServer) -> None:
    """Failed with a reason within two seconds, and nothing left within ten."""
    server = make_server()
    sandbox, neighbour = server.create(), server.create()
    box = server.box_of(sandbox.id)
    _kill_sentry(server, box)
    wait_until(lambda: sandbox.info().state == "failed", 2)
    assert sandbox.info().end_reason == "runtime_died"
    wait_until(lambda: box not in server.boxes(), 10)
    assert neighbour.commands.run("echo fine").stdout == "fine\n"


def test_a_killed_guest_is_a_failed_sandbox(make_server: MakeServer) -> None:
    server = make_server()
    sandbox = server.create()
    box = server.box_of(sandbox.id)
    try:
        sandbox.commands.run("kill -9 1", user="root", timeout_s=5)
    except AtollError as error:
        assert error.code.startswith(("guest_", "not_running"))  # noqa: PT017 - it may or may not be raised
    wait_until(lambda: sandbox.info().state == "failed", 2, "kill -9 of process 1 ends the sandbox")
    assert sandbox.info().end_reason in ("guest_died", "runtime_died")
    wait_until(lambda: box not in server.boxes(), 10)


def test_a_sandbox_that_died_while_the_server_was_down(make_server: MakeServer) -> None:
    server = make_server()
    sandbox = server.create(timeout_s=600)
    box = server.box_of(sandbox.id)
    server.kill()
    _kill_sentry(server, box)
    server.start()
    assert server.connect(sandbox.id).info().state == "failed"
    wait_until(lambda: not server.boxes(), 5)


def test_a_stop_loses_no_sandbox(make_server: MakeServer) -> None:
    server = make_server()
    sandbox = server.create(timeout_s=600)
    assert server.stop() == 0
    assert server.boxes()
    server.start()
    assert server.connect(sandbox.id).commands.run("echo still here").stdout == "still here\n"


def test_a_drain_ends_them(make_server: MakeServer) -> None:
    server = make_server()
    server.stop()
    server.start("--drain")
    sandbox = server.create(timeout_s=600)
    assert server.stop() == 0
    assert not server.boxes()
    row = next(row for row in server.rows() if row["id"] == sandbox.id)
    assert (row["state"], row["end_reason"]) == ("killed", "server_drained")


def test_two_servers_do_not_disturb_each_other(make_server: MakeServer) -> None:
    """One is killed and comes back, sweeping what it does not know: the other's sandbox is not part of that."""
    one, two = make_server(), make_server()
    kept = two.create(timeout_s=600)
    lost = one.create(timeout_s=600)
    one.kill()
    one.start()
    assert one.connect(lost.id).commands.run("echo 1").stdout == "1\n"
    assert kept.commands.run("echo 2").stdout == "2\n"
    with pytest.raises(AtollError):
        one.connect(kept.id)


def test_a_second_server_on_one_data_directory_refuses(make_server: MakeServer) -> None:
    server = make_server()
    second = Server(server.data, {})
    with pytest.raises(AssertionError, match="ended"):
        second.start()
    assert "another server" in server.log()
    assert server.request("GET", "/health").status_code == 200


def _kill_sentry(server: Server, box: str) -> None:
    entry = json.loads((server.data / "journal" / f"{box}.json").read_text())
    os.kill(entry["live"]["pid"], signal.SIGKILL)
