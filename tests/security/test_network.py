"""What hostile code tries on the network, tried in real sandboxes: each act is refused, and beside it succeeds.

The other end says what it has heard, so an act that got through is noticed whatever the sandbox was told. Acts run side
by side in one go for each policy; each is then a test of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from atoll import Sandbox
from atoll.testing.server import Server
from tests import upstream
from tests.security import acts, network_cases
from tests.security.far_end import FarEnd, far_end
from tests.security.network_cases import CLOSED, CLOUD, LISTED, NEVER, NEVER_INSIDE, PORT, PRIVATE, PRIVATE_V6, Case
from tests.upstream import HTTP_PORT, OTHER, TLS_PORT, WEB, Upstream
from tests.waiting import wait_until

pytestmark = pytest.mark.real

NARROW = {"allow": [f"good.test:{port}" for port in (PORT, TLS_PORT, HTTP_PORT)], "inspect": True}
WIDE = {"mode": "public", "allow": ["0.0.0.0/0:*"]}
PRIVATE_NETWORKS = ("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16")
NETWORKS = {"allow": [f"{network}:*" for network in (*PRIVATE_NETWORKS, "192.0.0.0/24", "168.63.129.16/32", WEB)]}
TCP = [(WEB, port) for port in (PORT, network_cases.SECOND_PORT, 53, 853, 1080)]
UDP = [(WEB, port) for port in (443, 853, 5353, 137, 9999)]


@dataclass(frozen=True)
class Outcome:
    """What came of an act: whether the other end heard it, whether it did what it was to do, and what was said."""

    heard: bool
    did: bool
    said: str


@dataclass(frozen=True)
class World:
    servers: Upstream
    far: FarEnd
    sandbox: Sandbox

    def heard(self, word: str) -> bool:
        requests = (*self.servers.web.seen, *self.servers.other.seen, *self.servers.tls.seen, *self.servers.asked)
        return self.far.has_heard(word) or any(word in request for request in requests)

    def tried(self, sandbox: Sandbox | None, cases: Mapping[str, Case], phase: str) -> dict[str, Outcome]:
        """All of these cases at once, in a sandbox or on the host itself."""
        words = {name: f"{phase}-case-{number}-end" for number, name in enumerate(cases)}
        said = perform(sandbox, {name: case(words[name]) for name, case in cases.items()})
        return {name: Outcome(self.heard(words[name]), how == "did", what) for name, (how, what) in said.items()}


def perform(sandbox: Sandbox | None, tried: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    text = json.dumps(tried)
    if sandbox is None:
        argv = [sys.executable, acts.__file__]
        done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=60, check=True).stdout
    else:
        sandbox.files.write("/tmp/acts.json", text)
        done = sandbox.commands.run("sudo python3 /tmp/acts.py < /tmp/acts.json", check=True, timeout_s=60).stdout
    return {name: (how, what) for name, (how, what) in json.loads(done).items()}


def host_address() -> str:
    """An address of this machine by which others reach it; its loopback's, if it has no other."""
    found = json.loads(subprocess.run(["ip", "-j", "-4", "addr"], capture_output=True, check=True).stdout)
    mine = [info["local"] for link in found if link["ifname"] != "lo" for info in link["addr_info"]]
    return str(mine[0]) if mine else "127.0.0.1"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upstream]:
    with upstream.upstream(tmp_path_factory.mktemp("upstream")) as running:
        running.names |= {
            "inside.test": [*PRIVATE][:1],
            "opened.test": [*PRIVATE.values()][:1],
            "loop.test": ["127.0.0.1"],
            "host.test": [host_address()],
            "metadata.google.internal": ["169.254.169.254"],
        }
        running.aliases |= {"alias.test": "inside.test", "opened-alias.test": "opened.test"}
        yield running


@pytest.fixture(scope="module")
def far(servers: Upstream) -> Iterator[FarEnd]:
    given = (*PRIVATE, *PRIVATE.values(), PRIVATE_V6)
    tcp = TCP + [(address, PORT) for address in (*given, "127.0.0.1", host_address(), OTHER)]
    with far_end(given, tcp, [*UDP, (PRIVATE_V6, 9999)]) as end:
        yield end


@pytest.fixture(scope="module")
def server(servers: Upstream, make_data_dir: Callable[[], Path]) -> Iterator[Server]:
    opened = ",".join((upstream.NETWORK, *PRIVATE.values()))
    running = Server(make_data_dir(), servers.settings | {"ATOLL_EGRESS_OPEN": opened})
    running.start()
    yield running
    running.close()


@pytest.fixture(scope="module")
def world(servers: Upstream, far: FarEnd, server: Server) -> Iterator[World]:
    with server.create(policy=NARROW) as sandbox:
        sandbox.files.write("/tmp/acts.py", Path(acts.__file__).read_text())
        yield World(servers, far, sandbox)


@pytest.fixture(scope="module")
def narrow(world: World) -> dict[str, Outcome]:
    world.sandbox.network.set_policy(NARROW)
    return world.tried(world.sandbox, LISTED, "narrow")


@pytest.fixture(scope="module")
def wide(narrow: dict[str, Outcome], world: World) -> dict[str, Outcome]:
    """All that the widest policy lets through, and what it does not."""
    world.sandbox.network.set_policy(WIDE)
    closed = {name: case for name, (case, _) in CLOSED.items()}
    return world.tried(world.sandbox, LISTED | closed | CLOUD | NEVER | NEVER_INSIDE, "wide")


@pytest.fixture(scope="module")
def outside(world: World) -> dict[str, Outcome]:
    return world.tried(None, NEVER, "outside")


@pytest.fixture(scope="module")
def opened(wide: dict[str, Outcome], world: World) -> dict[str, Outcome]:
    return world.tried(world.sandbox, {name: case for name, (_, case) in CLOSED.items()}, "opened")


def test_what_is_listed_is_reached(world: World) -> None:
    world.sandbox.network.set_policy(NARROW)
    found = world.tried(world.sandbox, {"by name": network_cases.asks("good.test")}, "plain")
    assert found["by name"].heard, found


@pytest.mark.parametrize("name", LISTED)
def test_what_is_not_listed_is_not_reached(narrow: dict[str, Outcome], wide: dict[str, Outcome], name: str) -> None:
    assert not narrow[name].heard, narrow[name].said
    assert wide[name].heard, wide[name].said


@pytest.mark.parametrize("name", CLOSED)
def test_what_no_policy_opens(wide: dict[str, Outcome], opened: dict[str, Outcome], name: str) -> None:
    assert not wide[name].heard, wide[name].said
    assert opened[name].heard, opened[name].said


@pytest.mark.parametrize("name", NEVER)
def test_what_is_neither_tcp_nor_dns(wide: dict[str, Outcome], outside: dict[str, Outcome], name: str) -> None:
    assert not wide[name].heard
    assert not wide[name].did, wide[name].said
    assert outside[name].heard or outside[name].did, outside[name].said


@pytest.mark.parametrize("name", [*CLOUD, *NEVER_INSIDE])
def test_what_leads_nowhere(wide: dict[str, Outcome], name: str) -> None:
    assert wide["the address itself"].heard, "the control: beside it, at the same moment, an address passes"
    assert not wide[name].heard
    assert not wide[name].did or "x-atoll-reason" in wide[name].said, wide[name].said


# --- one after the other ---

KNOCK = f"""
import os, socket, threading
tried = []
def knock():
    while not os.path.exists("/tmp/enough"):
        tried.append(None)
        try:
            with socket.create_connection(("{WEB}", {PORT}), timeout=1) as sock:
                sock.sendall(b"GET /gap-word HTTP/1.1\\r\\nHost: {WEB}:{PORT}\\r\\n\\r\\n")
                sock.recv(100)
        except OSError:
            pass
threads = [threading.Thread(target=knock) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(tried))
"""


def through(found: Mapping[str, Outcome]) -> dict[str, str]:
    """Those acts that did get anywhere, and what they were told."""
    return {
        name: outcome.said
        for name, outcome in found.items()
        if outcome.heard or (outcome.did and "x-atoll-reason" not in outcome.said)
    }


def test_where_nothing_is_allowed_nothing_gets_anywhere(world: World) -> None:
    """All acts once more. Of names somebody may still be asked: the answer is that they are refused."""
    world.sandbox.network.set_policy({"mode": "nothing"})
    cases = LISTED | {name: case for name, (case, _) in CLOSED.items()} | CLOUD | NEVER | NEVER_INSIDE
    found = world.tried(world.sandbox, cases, "nothing")
    passed = through(found)
    assert {name for name in passed if found[name].heard} == set()
    assert {name: said for name, said in passed.items() if said != "5 0"} == {}, "5 is a refused question"


def test_rules_for_networks_open_none_that_nobody_may_reach(world: World) -> None:
    world.sandbox.network.set_policy(NETWORKS)
    cases = {name: case for name, (case, _) in CLOSED.items()} | CLOUD | NEVER | NEVER_INSIDE
    found = world.tried(world.sandbox, cases | {"the control": network_cases.asks(WEB)}, "networks")
    assert set(through(found)) == {"the control"}


def test_a_name_that_turns_inside_after_it_was_looked_up(world: World) -> None:
    """Rebinding: a good answer first, then a private one, then both; each time the name itself is allowed."""
    turning = {"turning": network_cases.asks("turning.test")}
    world.sandbox.network.set_policy({"allow": [f"turning.test:{PORT}"]})
    inside_address, opened_address = next(iter(PRIVATE.items()))
    for number, (answer, reached) in enumerate(
        [([WEB], WEB), ([inside_address], ""), ([inside_address, WEB], WEB), ([opened_address], opened_address)]
    ):
        world.servers.names["turning.test"] = answer
        world.tried(world.sandbox, turning, f"turning{number}")
        word = f"turning{number}-case-0-end"
        assert {at for at, text in world.far.heard if word in text} == ({reached} if reached else set())


def test_changes_of_policy_open_no_gap(world: World) -> None:
    """A program knocks all the time while the policy is replaced by others that do not allow it either."""
    sandbox = world.sandbox
    sandbox.network.set_policy([])
    sandbox.files.write("/tmp/knock.py", KNOCK)
    knocker = sandbox.commands.start(["python3", "/tmp/knock.py"])
    for number in range(50):
        sandbox.network.set_policy([f"name{number}.test", f"good.test:{TLS_PORT}"])
        sandbox.network.set_policy({"mode": "public", "deny": [upstream.NETWORK]})
    assert not world.far.has_heard("gap-word")
    sandbox.network.set_policy([f"{WEB}:{PORT}"])
    wait_until(lambda: world.far.has_heard("gap-word"), 10, "the control: it does knock")
    sandbox.files.write("/tmp/enough", "")
    assert int(knocker.wait().stdout) > 100, "one for each change"


def test_a_tighter_policy_cuts_what_is_open(world: World) -> None:
    sandbox = world.sandbox
    sandbox.network.set_policy([f"good.test:{HTTP_PORT}"])
    endless = sandbox.commands.start(f"curl -sN http://good.test:{HTTP_PORT}/endless > /dev/null")
    before = sandbox.network.status().bytes_down
    wait_until(lambda: sandbox.network.status().bytes_down > before + 5000, 10, "it flows")
    sandbox.network.set_policy([f"good.test:{HTTP_PORT}", "other.test"])
    before = sandbox.network.status().bytes_down
    wait_until(lambda: sandbox.network.status().bytes_down > before + 5000, 10, "it flows on where it may")
    sandbox.network.set_policy(["other.test"])
    assert sandbox.network.status().connections_open == 0 or wait_until(
        lambda: sandbox.network.status().connections_open == 0, 1, "it is cut within a second"
    )
    assert endless.wait().exit_code != 0
    assert [event.reason for event in sandbox.network.status().events if event.kind == "connection"][-1] == (
        "policy_changed"
    )
