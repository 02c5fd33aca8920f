"""What becomes of a sandbox's network when the server does not do its part, and when the sandbox changes its state."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from atoll import Sandbox
from atoll.testing.server import Server
from tests.upstream import HTTP_PORT, Upstream
from tests.waiting import wait_until

pytestmark = pytest.mark.real

GOOD = f"http://good.test:{HTTP_PORT}"
OTHER = f"http://other.test:{HTTP_PORT}"

# Knocks all the time, and keeps count on its disk, where the host can see it.
KNOCKER = f"""
import socket, time
address = socket.gethostbyname("good.test")
while True:
    try:
        with socket.create_connection((address, {HTTP_PORT}), timeout=0.2) as s:
            s.sendall(b"GET /knock HTTP/1.1\\r\\nHost: good.test:{HTTP_PORT}\\r\\nConnection: close\\r\\n\\r\\n")
            s.recv(100)
    except OSError:
        pass
    with open("/home/user/tried", "a") as file:
        file.write("x")
    time.sleep(0.02)
"""


# Holds one connection open, until somebody cuts it.
HOLDER = f"""
import socket
link = socket.create_connection(("good.test", {HTTP_PORT}))
link.sendall(b"GET /endless HTTP/1.1\\r\\nHost: good.test:{HTTP_PORT}\\r\\n\\r\\n")
print(link.recv(100)[:12].decode(), flush=True)
while link.recv(65536):
    pass
"""


@pytest.fixture(scope="module")
def server(servers: Upstream, make_data_dir: Callable[[], Path]) -> Iterator[Server]:
    running = Server(make_data_dir(), servers.settings)
    running.start()
    yield running
    running.close()


def knocks(servers: Upstream) -> int:
    """How many requests of the knocker have reached the other end."""
    return sum("GET /knock" in request for request in servers.web.seen)


def tries(server: Server, sandbox: Sandbox) -> int:
    """How often the knocker has tried, read from the host: the server may be out of order."""
    disk = server.data / "pool" / "sandboxes" / server.box_of(sandbox.id)
    return (disk / "home" / "user" / "tried").stat().st_size


def heard_while_it_tries(server: Server, servers: Upstream, sandbox: Sandbox) -> int:
    """How many requests get out while the knocker tries five more times."""
    heard, tried = knocks(servers), tries(server, sandbox)
    wait_until(lambda: tries(server, sandbox) >= tried + 5, 60, "the knocker goes on")
    return knocks(servers) - heard


def assert_nothing_gets_out(server: Server, servers: Upstream, sandbox: Sandbox) -> None:
    """What was on its way already may arrive; then nothing does."""
    wait_until(lambda: heard_while_it_tries(server, servers, sandbox) == 0, 60, "silence")
    assert heard_while_it_tries(server, servers, sandbox) == 0


def test_a_stuck_and_a_dead_proxy_let_nothing_out_and_come_back(server: Server, servers: Upstream) -> None:
    """The knocker inside goes on whatever the server does; the other end says what reached it."""
    sandbox = server.create(policy=[f"good.test:{HTTP_PORT}"])
    sandbox.files.write("/home/user/knocker.py", KNOCKER)
    sandbox.commands.start(["python3", "/home/user/knocker.py"])
    sandbox.close()
    wait_until(lambda: knocks(servers) > 3, 20, "the knocker is heard")

    os.kill(server.pid, signal.SIGSTOP)
    try:
        assert_nothing_gets_out(server, servers, sandbox)
    finally:
        os.kill(server.pid, signal.SIGCONT)
    wait_until(lambda: heard_while_it_tries(server, servers, sandbox) > 0, 60, "it comes back")

    server.kill()
    assert_nothing_gets_out(server, servers, sandbox)
    server.start()
    wait_until(lambda: heard_while_it_tries(server, servers, sandbox) > 0, 60, "it is back with the server")
    with server.connect(sandbox.id) as again:
        assert again.commands.run(f"curl -sS --max-time 5 {OTHER}/").exit_code != 0, "and so is its policy"


def reaches(sandbox: Sandbox) -> tuple[bool, bool]:
    """Whether the allowed and the other place answer."""
    line = f"curl -sS --max-time 5 {GOOD}/x; echo --; curl -sS --max-time 5 {OTHER}/x"
    allowed, _, other = sandbox.commands.run(line).stdout.partition("--")
    return "GET /x" in allowed, "GET /x" in other


def restarted(server: Server, sandbox: Sandbox, *, kill: bool) -> Sandbox:
    """The same sandbox after the server was killed, or has stopped, and has come back at another address."""
    sandbox.close()
    if kill:
        server.kill()
    else:
        server.stop()
    server.start()
    return server.connect(sandbox.id)


def test_the_policy_stays_through_every_change_of_state(server: Server, servers: Upstream) -> None:
    """Standby, pause, fork, a restart while it runs and one while it sleeps; and a change in between stays, too."""
    sandbox = server.create(policy=[f"good.test:{HTTP_PORT}"])
    assert reaches(sandbox) == (True, False)
    for sleep in (sandbox.standby, sandbox.pause):
        sleep()
        sandbox.resume()
        assert reaches(sandbox) == (True, False)
    (twin,) = sandbox.fork(1)
    with twin:
        assert reaches(twin) == (True, False)
        assert twin.network.policy() == sandbox.network.policy()
        twin.network.set_policy([f"other.test:{HTTP_PORT}"])
        assert reaches(twin) == (False, True)
        assert reaches(sandbox) == (True, False), "each has its own"
    sandbox = restarted(server, sandbox, kill=False)
    assert reaches(sandbox) == (True, False)
    sandbox.pause()
    sandbox = restarted(server, sandbox, kill=True)
    sandbox.resume()
    assert reaches(sandbox) == (True, False)
    sandbox.kill()
    sandbox.close()


def test_a_cap_is_for_the_whole_life(server: Server, servers: Upstream) -> None:
    """Neither sleep nor a kill of the server gives a sandbox its bytes back. Positive control: a higher cap does."""
    fetch = f"curl -sS --max-time 10 -o /dev/null -w '%{{size_download}}' {GOOD}/bytes/60000"
    sandbox = server.create(policy={"allow": [f"good.test:{HTTP_PORT}"], "bytes_max": 100_000})
    assert sandbox.commands.run(fetch).stdout == "60000"
    moved_bytes = sandbox.network.status().bytes_down
    sandbox = restarted(server, sandbox, kill=True)
    assert sandbox.network.status().bytes_down == moved_bytes
    sandbox.pause()
    sandbox = restarted(server, sandbox, kill=False)
    sandbox.resume()
    assert sandbox.network.status().bytes_down == moved_bytes
    assert sandbox.commands.run(fetch).stdout != "60000"
    assert sandbox.commands.run(fetch).exit_code != 0
    sandbox.network.set_policy({"allow": [f"good.test:{HTTP_PORT}"], "bytes_max": 1_000_000})
    assert sandbox.commands.run(fetch).stdout == "60000"
    sandbox.kill()
    sandbox.close()
    assert not (server.data / "network" / sandbox.id).exists()


def test_a_refused_name_is_in_the_audit_log_of_the_owner(server: Server) -> None:
    """Of a program that is refused at its first question no connection tells. Control: one that is not."""
    with server.create(policy=[f"good.test:{HTTP_PORT}"]) as sandbox:
        asked = sandbox.commands.run(f"curl -sS http://blocked.test/; curl -sS http://good.test:{HTTP_PORT}/")
        assert "blocked.test" in asked.stderr

        def told() -> set[tuple[str, str, str]]:
            events = server.request("GET", f"/v1/events?target={sandbox.id}").json()["items"]
            network = [event for event in events if event["action"].startswith("network.")]
            return {(event["action"], event["detail"]["name"], event["result"]) for event in network}

        expected = {("network.lookup", "blocked.test", "refused"), ("network.connection", "good.test", "ok")}
        wait_until(lambda: told() == expected, 5, "both are told")


def test_a_server_that_stops_tells_of_the_connections_that_were_open(server: Server) -> None:
    sandbox = server.create(policy=[f"good.test:{HTTP_PORT}"])
    holder = sandbox.commands.start(["python3", "-c", HOLDER])
    assert next(iter(holder)).data == b"HTTP/1.1 200\n"  # type: ignore[union-attr]
    assert server.stop() == 0
    server.start()
    query = f"/v1/events?target={sandbox.id}&action=network.connection"
    told = [event["detail"] for event in server.request("GET", query).json()["items"]]
    assert [(event["name"], event["reason"]) for event in told] == [("good.test", "allowed")]
    assert int(told[0]["bytes_down"]) > 0
    server.connect(sandbox.id).kill()
