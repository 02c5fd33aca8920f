"""What changed while a sandbox slept is what counts when it wakes; and what it was talking to is gone, and says so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from atoll import Sandbox
from atoll.model.errors import AtollError, LimitExceeded, Unauthenticated
from atoll.testing.server import Server
from tests.upstream import HTTP_PORT, TLS_PORT, Upstream
from tests.waiting import wait_until

pytestmark = pytest.mark.real

PLAIN = f"http://good.test:{HTTP_PORT}/"
SECURE = f"https://good.test:{TLS_PORT}/"

# Talks to a server that never stops, and says what became of that.
TALK = f"""
import socket
talk = socket.create_connection(("good.test", {HTTP_PORT}))
talk.sendall(b"GET /endless HTTP/1.1\\r\\nhost: good.test:{HTTP_PORT}\\r\\n\\r\\n")
talk.recv(100)
open("talking", "w").close()
try:
    while talk.recv(65536):
        pass
    said = "end"
except OSError as error:
    said = type(error).__name__
open("said", "w").write(said)
"""


@pytest.fixture(scope="module")
def server(servers: Upstream, make_data_dir: Callable[[], Path]) -> Iterator[Server]:
    running = Server(make_data_dir(), servers.settings)
    running.start()
    yield running
    running.close()


def sleeps(sandbox: Sandbox, way: str) -> None:
    getattr(sandbox, way)()


def secret_put(server: Server, value: str) -> None:
    body = {"value": value, "hosts": [f"good.test:{TLS_PORT}"]}
    assert server.request("PUT", "/v1/secrets/TURN", json=body).status_code == 200


@pytest.mark.parametrize("way", ["pause", "standby"])
def test_policies_and_secrets_are_the_new_ones(server: Server, servers: Upstream, way: str) -> None:
    secret_put(server, "canary-first-value")
    with server.create(policy=[f"good.test:{HTTP_PORT}", f"good.test:{TLS_PORT}"], secrets=["TURN"]) as sandbox:
        call = f'curl -sS -H "X-Key: $TURN" {SECURE}'
        assert "GET /" in sandbox.commands.run(f"curl -sS {PLAIN}").stdout
        sandbox.commands.run(call, check=True)
        assert "canary-first-value" in servers.tls.seen[-1]
        sleeps(sandbox, way)
        sandbox.network.set_policy([f"good.test:{TLS_PORT}"])
        secret_put(server, "canary-second-value")
        assert sandbox.info().state in ("paused", "standby"), "neither wakes it"
        sandbox.resume()
        assert "not_listed" in sandbox.commands.run(f"curl -sS {PLAIN}").stdout
        sandbox.commands.run(call, check=True)
        assert "canary-second-value" in servers.tls.seen[-1]
        sleeps(sandbox, way)
        server.request("DELETE", "/v1/secrets/TURN")
        sandbox.resume()
        sandbox.commands.run(f"{call} -k")
        assert "canary" not in servers.tls.seen[-1]


def test_keys_and_quotas_are_the_new_ones(server: Server) -> None:
    made = server.request("POST", "/v1/keys", json={"name": "old"}).json()
    with server.create(timeout_s=600) as sandbox:
        old = Sandbox.connect(sandbox.id, url=server.url, api_key=made["key"])
        assert old.commands.run("echo in").stdout == "in\n"
        sandbox.pause()
        assert server.request("DELETE", f"/v1/keys/{made['view']['id']}").is_success
        assert server.request("PUT", "/v1/tenants/default/quota", json={"sandboxes": 1}).status_code == 200
        with pytest.raises(Unauthenticated):
            old.resume()
        assert sandbox.info().state == "paused"
        assert sandbox.resume().state == "running"
        with pytest.raises(Unauthenticated):
            old.commands.run("echo in")
        with pytest.raises(LimitExceeded) as caught:
            server.create(timeout_s=60)
        assert caught.value.code == "quota_exceeded"
        with pytest.raises(LimitExceeded):
            sandbox.fork(1)
        assert sandbox.commands.run("echo fine").stdout == "fine\n"
        assert server.request("PUT", "/v1/tenants/default/quota", json={}).status_code == 200
        old.close()


def test_a_quota_that_is_full_in_the_middle_of_a_fork_leaves_the_copies_that_fit(server: Server) -> None:
    """And without `partial` none: nothing is left of those that were made."""
    with server.create(timeout_s=600) as sandbox:
        sandbox.files.write("note", "kept")
        assert server.request("PUT", "/v1/tenants/default/quota", json={"sandboxes": 2}).status_code == 200
        try:
            forks = sandbox.fork(3, partial=True)
            assert [problem.code for problem in forks.problems] == ["quota_exceeded"] * 2
            (copy,) = forks
            with copy:
                assert copy.files.read("note") == "kept"
            with pytest.raises(LimitExceeded):
                sandbox.fork(3)
        finally:
            assert server.request("PUT", "/v1/tenants/default/quota", json={}).status_code == 200
        wait_until(lambda: server.boxes() == {server.box_of(sandbox.id)}, 10, "no copy is left")
        assert sandbox.commands.run("echo fine").stdout == "fine\n"


def test_connections_of_before_fail_at_once(server: Server) -> None:
    """A reader that hung for ever would be the worst of all: its program would never know."""
    with server.create(policy=[f"good.test:{HTTP_PORT}"], timeout_s=600) as sandbox:
        sandbox.commands.start(["python3", "-c", TALK])
        wait_until(lambda: sandbox.files.exists("talking"), 30, "it talks")
        sandbox.pause()
        sandbox.resume()
        wait_until(lambda: sandbox.files.exists("said"), 30, "it has been told")
        assert sandbox.files.read("said") in ("ConnectionAbortedError", "ConnectionResetError", "end")
        assert "GET /" in sandbox.commands.run(f"curl -sS {PLAIN}").stdout, "a new one works"


def test_connections_of_a_copy_fail_and_those_of_the_original_go_on(server: Server) -> None:
    with server.create(policy=[f"good.test:{HTTP_PORT}"], timeout_s=600) as sandbox:
        sandbox.commands.start(["python3", "-c", TALK])
        wait_until(lambda: sandbox.files.exists("talking"), 30, "it talks")
        (copy,) = sandbox.fork(1)
        with copy:
            wait_until(lambda: copy.files.exists("said"), 30, "the copy has been told")
        assert not sandbox.files.exists("said"), "the original has not noticed anything"


def test_a_resume_during_a_pause_waits_for_it(server: Server) -> None:
    with server.create(timeout_s=600) as sandbox:
        process = sandbox.commands.start(["sleep", "1000"])
        for _ in range(3):
            pausing = threading.Thread(target=sandbox.pause)
            pausing.start()
            wait_until(lambda: sandbox.info().state in ("pausing", "paused"), 30)
            assert server.connect(sandbox.id).resume().state == "running"
            pausing.join()
            assert sandbox.info().state == "running"
            assert process.id in [view.id for view in sandbox.commands.list() if view.running]
            wait_until(lambda: len(server.boxes()) == 1, 30, "one sandbox")


def test_a_rollback_that_fails_leaves_the_network_as_it_was(server: Server) -> None:
    """What it was to go back to had the gate already when it was refused."""
    with server.create("code", policy=[f"good.test:{HTTP_PORT}"], timeout_s=600) as sandbox:
        pid = sandbox.code.run("import os; os.getpid()", check=True).text
        sandbox.commands.run(f"kill -STOP {pid}", check=True)  # it cannot draw new random numbers
        snapshot = sandbox.snapshot()
        sandbox.commands.run(f"kill -CONT {pid}", check=True)
        with pytest.raises(AtollError) as caught:
            sandbox.rollback(snapshot)
        assert caught.value.code == "reseed_failed"
        assert "GET /" in sandbox.commands.run(f"curl -sS --max-time 10 {PLAIN}").stdout
        assert sandbox.code.run("6 * 7").text == "42"


def test_traffic_to_the_outside_keeps_a_sandbox_awake(server: Server) -> None:
    """A download in the background is work, also when it prints nothing and nobody asks."""
    with server.create(policy=[f"good.test:{HTTP_PORT}"], timeout_s=600, idle_timeout_s=1, on_deadline="pause") as busy:
        busy.commands.start(f"exec curl -sS --limit-rate 200k -o /dev/null {PLAIN}endless")
        time.sleep(4)
        assert busy.info().state == "running"
        busy.network.set_policy([])
        wait_until(lambda: busy.info().state == "paused", 30, "it is idle as soon as nothing moves")
        assert busy.info().sleep_reason == "idle"
