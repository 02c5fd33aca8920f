"""Kills at the worst moment: of the server, of a sandbox's sentry, of its guest. Nothing is lost, nothing is left."""

from __future__ import annotations

import functools
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import httpx2
import pytest

from atoll.model.errors import AtollError
from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real

MakeServer = Callable[..., Server]


@pytest.fixture
def server(server: Server) -> Iterator[Server]:
    """The server of this module, which every test may kill: it has nothing before, and nothing is left afterwards."""
    assert not server.boxes()
    yield server
    for sandbox in server.sandboxes():
        server.connect(sandbox["id"]).kill()
    wait_until(lambda: not server.boxes(), 10, "nothing is left")


def test_a_sandbox_outlives_a_kill_of_the_server(server: Server) -> None:
    """The same id, the same processes, the same files; and it answers."""
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
def test_a_kill_at_any_moment_of_a_create_leaves_nothing_half_made(server: Server) -> None:
    """Kill the server while several creates are at moments that cover all of one, from its first step to its last."""
    for moments_ms in ((2, 10, 30, 60, 100), (50, 150, 300, 450, 600)):
        kill_in_the_middle(server, [functools.partial(_create_quietly, server)] * len(moments_ms), moments_ms)


def kill_in_the_middle(server: Server, acts: Sequence[Callable[[], None]], moments_ms: Sequence[int]) -> None:
    """Begin each act so many milliseconds before one kill of the server; afterwards host and database agree."""
    attempts = []
    last_ms = max(moments_ms)
    began_s = time.monotonic()
    for act, moment_ms in sorted(zip(acts, moments_ms, strict=True), key=lambda pair: -pair[1]):
        time.sleep(max(0.0, began_s + (last_ms - moment_ms) / 1000 - time.monotonic()))
        attempts.append(threading.Thread(target=act))
        attempts[-1].start()
    time.sleep(max(0.0, began_s + last_ms / 1000 - time.monotonic()))
    server.kill()
    for attempt in attempts:
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
def test_a_kill_during_a_kill_is_finished_by_the_next_start(server: Server) -> None:
    for moments_ms in ((1, 4, 10, 20), (15, 40, 80)):
        sandboxes = [server.create("base", timeout_s=600) for _ in moments_ms]
        acts = [functools.partial(_kill_quietly, server, sandbox.id) for sandbox in sandboxes]
        kill_in_the_middle(server, acts, moments_ms)


def _kill_quietly(server: Server, sandbox_id: str) -> None:
    try:
        server.request("DELETE", f"/v1/sandboxes/{sandbox_id}")
    except httpx2.TransportError:
        return


def test_a_killed_sentry_is_a_failed_sandbox(server: Server) -> None:
    """Failed with a reason within two seconds, and nothing left within ten."""
    sandbox, neighbour = server.create(), server.create()
    box = server.box_of(sandbox.id)
    _kill_sentry(server, box)
    wait_until(lambda: sandbox.info().state == "failed", 2)
    assert sandbox.info().end_reason == "runtime_died"
    wait_until(lambda: box not in server.boxes(), 10)
    assert neighbour.commands.run("echo fine").stdout == "fine\n"


def test_a_killed_guest_is_a_failed_sandbox(server: Server) -> None:
    sandbox = server.create()
    box = server.box_of(sandbox.id)
    try:
        sandbox.commands.run("kill -9 1", user="root", timeout_s=5)
    except AtollError as error:
        assert error.code.startswith(("guest_", "not_running"))  # noqa: PT017 - it may or may not be raised
    wait_until(lambda: sandbox.info().state == "failed", 2, "kill -9 of process 1 ends the sandbox")
    assert sandbox.info().end_reason in ("guest_died", "runtime_died")
    wait_until(lambda: box not in server.boxes(), 10)


def test_a_sandbox_that_died_while_the_server_was_down(server: Server) -> None:
    sandbox = server.create(timeout_s=600)
    box = server.box_of(sandbox.id)
    server.kill()
    _kill_sentry(server, box)
    server.start()
    assert server.connect(sandbox.id).info().state == "failed"
    wait_until(lambda: not server.boxes(), 5)


def test_a_stop_loses_no_sandbox(server: Server) -> None:
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


def test_two_servers_do_not_disturb_each_other(server: Server, make_server: MakeServer) -> None:
    """One is killed and comes back, sweeping what it does not know: the other's sandbox is not part of that."""
    one, two = server, make_server()
    kept = two.create(timeout_s=600)
    lost = one.create(timeout_s=600)
    one.kill()
    one.start()
    assert one.connect(lost.id).commands.run("echo 1").stdout == "1\n"
    assert kept.commands.run("echo 2").stdout == "2\n"
    with pytest.raises(AtollError):
        one.connect(kept.id)


def test_a_second_server_on_one_data_directory_refuses(server: Server) -> None:
    second = Server(server.data, {})
    with pytest.raises(AssertionError, match="ended"):
        second.start()
    assert "another server" in server.log()
    assert server.request("GET", "/health").status_code == 200


def _kill_sentry(server: Server, box: str) -> None:
    entry = json.loads((server.data / "journal" / f"{box}.json").read_text())
    os.kill(entry["live"]["pid"], signal.SIGKILL)
