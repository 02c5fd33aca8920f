"""State by the command line: standby, pause, resume, snapshots, forks, rollback, deadlines; and the space they take."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from atoll import Snapshot
from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real

Atoll = Callable[..., str]


@pytest.fixture
def atoll(server: Server) -> Atoll:
    """The command line; answers what it printed. With `code`, it ends with that and says why."""

    def run(*words: str, code: int = 0) -> str:
        environment = {**os.environ, "ATOLL_URL": server.url, "ATOLL_API_KEY": server.key}
        argv = [sys.executable, "-m", "atoll", *words]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == code, (words, done)
        return (done.stderr if code else done.stdout).strip()

    return run


@pytest.fixture
def box(server: Server, atoll: Atoll) -> Iterator[str]:
    sandbox_id = atoll("sandbox", "create", "--name", "box", "-t", "base", "--timeout", "600")
    yield sandbox_id
    server.connect(sandbox_id).kill()


def _state(atoll: Atoll) -> str:
    return str(json.loads(atoll("sandbox", "info", "box", "--json"))["state"])


def test_sleep_and_waking(atoll: Atoll, box: str) -> None:
    atoll("sandbox", "exec", "box", "echo kept > note")
    atoll("sandbox", "standby", "box")
    assert "standby" in atoll("sandbox", "ls")
    assert atoll("sandbox", "exec", "box", "cat note") == "kept"
    assert _state(atoll) == "running"
    for options in ((), ("--disk-only",)):
        atoll("sandbox", "pause", "box", *options)
        assert atoll("sandbox", "ls").splitlines()[1].endswith(" -"), "no deadline holds"
        assert "none while it sleeps" in atoll("sandbox", "info", "box")
        assert "not_running" in atoll("sandbox", "exec", "box", "true", code=1)
        atoll("sandbox", "resume", "box", "--timeout", "500")
        assert atoll("sandbox", "exec", "box", "cat note") == "kept"


def test_snapshots_forks_and_rollback(atoll: Atoll, box: str) -> None:
    atoll("sandbox", "exec", "box", "echo one > note; echo gone > other")
    first = atoll("sandbox", "snapshot", "box", "first")
    disk = atoll("sandbox", "snapshot", "box", "--disk-only", "--expires", "1h")
    atoll("sandbox", "exec", "box", "echo two > note; rm other; echo new > third")
    shown = {one["id"]: one for one in json.loads(atoll("snapshot", "ls", "--sandbox", "box", "--json"))}
    assert (shown[first]["name"], shown[first]["has_memory"]) == ("first", True)
    assert (shown[disk]["has_memory"], bool(shown[disk]["expires_at"])) == (False, True)
    changes = {"~ /home/user/note", "- /home/user/other", "+ /home/user/third"}
    assert changes <= set(atoll("snapshot", "diff", "first", "box").splitlines())
    second = atoll("sandbox", "snapshot", "box", "second")
    for name in (second, "second"):
        assert changes <= set(atoll("snapshot", "diff", "first", name).splitlines())
    assert "sandbox_not_found" in atoll("snapshot", "diff", "first", "nobody", code=1)
    atoll("snapshot", "restore", "first", "box", "/home/user/other")
    assert atoll("sandbox", "exec", "box", "cat other note") == "gone\ntwo"
    for asleep in (False, True):
        if asleep:
            atoll("sandbox", "pause", "box")
        forks = atoll("sandbox", "fork", "box", "--count", "2", "--timeout", "300").split()
        assert [atoll("sandbox", "exec", fork, "cat note") for fork in forks] == ["two", "two"]
        for fork in forks:
            atoll("sandbox", "kill", fork)
    atoll("sandbox", "rollback", "box", "first")
    assert atoll("sandbox", "exec", "box", "cat note") == "one"
    other = atoll("sandbox", "create", "-t", "second", "--timeout", "300")
    atoll("snapshot", "rm", "first", "second", disk)
    assert atoll("sandbox", "exec", other, "cat note") == "two"
    atoll("sandbox", "kill", other)
    assert json.loads(atoll("snapshot", "ls", "--json")) == []


def test_only_the_last_are_kept(atoll: Atoll, box: str) -> None:
    kept = [atoll("sandbox", "snapshot", "box", "--disk-only", "--keep-last", "2") for _ in range(3)]
    assert [one["id"] for one in json.loads(atoll("snapshot", "ls", "--json"))] == [kept[2], kept[1]]
    atoll("snapshot", "rm", *kept[1:])


@pytest.mark.parametrize("action", ["pause", "pause_disk", "standby"])
def test_at_the_deadline_it_sleeps_and_wakes_on_request(atoll: Atoll, server: Server, action: str) -> None:
    options = ("--timeout", "1", "--on-deadline", action, "--auto-resume")
    atoll("sandbox", "create", "--name", "box", "-t", "base", *options)
    wait_until(lambda: _state(atoll) in ("paused", "standby"), 30, "it sleeps")
    info = json.loads(atoll("sandbox", "info", "box", "--json"))
    assert (info["state"], info["sleep_reason"]) == ("standby" if action == "standby" else "paused", "deadline")
    told = atoll("sandbox", "info", "box")
    assert f"then {action}" in told
    assert "from a pause by any call" in told
    assert atoll("sandbox", "exec", "box", "echo awake") == "awake"
    atoll("sandbox", "kill", "box")


def test_a_snapshot_says_what_it_has_alone_and_what_it_shares(server: Server, atoll: Atoll) -> None:
    """Which of the two a byte is depends on what else there is."""
    own = {"url": server.url, "api_key": server.key}
    with server.create(timeout_s=600) as sandbox:
        sandbox.commands.run("head -c 8000000 /dev/urandom > big && sync big", check=True)
        snapshot = sandbox.snapshot(memory=False)
        before = Snapshot.space(snapshot, **own)
        assert before.own_bytes < 1_000_000
        assert before.shared_bytes > 8_000_000, "with the sandbox and with the template"
        sandbox.commands.run("rm big && sync", check=True)
        after = Snapshot.space(snapshot, **own)
        assert 8_000_000 <= after.own_bytes < 10_000_000
        assert after.own_bytes + after.shared_bytes == before.own_bytes + before.shared_bytes
        assert json.loads(atoll("snapshot", "info", snapshot.id))["own_bytes"] == after.own_bytes
        again = server.create(snapshot.id, timeout_s=600)
        assert Snapshot.space(snapshot, **own).own_bytes < 1_000_000
        again.kill()
        with_memory = sandbox.snapshot()
        assert Snapshot.space(with_memory, **own).own_bytes >= with_memory.memory_bytes > 0
        (listed,) = json.loads(atoll("snapshot", "ls", "--space", "--json", "--limit", "1"))
        assert listed["id"] == with_memory.id
        assert listed["own_bytes"] >= with_memory.memory_bytes
        assert "SHARED" in atoll("snapshot", "ls", "--space").splitlines()[0]
        for one in (snapshot, with_memory):
            Snapshot.delete(one, **own)
