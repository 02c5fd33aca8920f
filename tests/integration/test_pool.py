"""The pool: a create from it is one of many ways to the same sandbox, only faster, and nothing of it is seen before."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from atoll import Sandbox
from atoll.model.errors import AtollError
from atoll.node import cgroups
from atoll.node.names import HostNames
from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real


def waiting(server: Server) -> list[dict[str, object]]:
    """The journal's boxes that live and have no owner."""
    return [entry for entry in server.journal() if entry["sandbox_id"] == ""]


def fill(server: Server) -> None:
    wait_until(lambda: server.status()["warm"]["base"]["live"] >= 1, 60, "one of `base` is ready")
    wait_until(lambda: server.status()["warm"]["code"]["live"] >= 1, 60, "one of `code` is ready")


@pytest.fixture(scope="module")
def pooled(make_data_dir: Callable[[], Path]) -> Iterator[Server]:
    server = Server(make_data_dir(), {"ATOLL_WARM_SIZE": "3"})
    server.start()
    yield server
    server.close()


def test_a_claim_is_a_sandbox_like_any_other(pooled: Server) -> None:
    fill(pooled)
    with pooled.create(env={"A": "1"}, name="claimed", cpu=0.5, pids=100, disk="64MiB") as sandbox:
        assert sandbox.way == "pool"
        assert sandbox.commands.run("echo $A; hostname").stdout == "1\nclaimed\n"
        assert sandbox.commands.run("dd if=/dev/zero of=big bs=1M count=100").exit_code != 0
        assert sandbox.commands.run("ulimit -u").stdout.strip() == "100"
        assert sandbox.info().resources.cpu == 0.5


def test_nothing_is_left_of_the_time_before(pooled: Server) -> None:
    """No processes, no history, no shared token, no shared machine id or random state."""
    fill(pooled)
    waited = {str(entry["token"]) for entry in waiting(pooled)}
    sandboxes = [pooled.create() for _ in range(2)]
    assert sandboxes[0].way == "pool"
    seen = []
    for sandbox in sandboxes:
        assert sandbox.commands.list() == []
        assert pooled.entry_of(sandbox.id)["token"] not in waited
        names = "cat /etc/machine-id; hostname; cat /proc/sys/kernel/random/uuid; ls -A /home/user /tmp"
        seen.append(sandbox.commands.run(names).stdout)
    assert len(set(seen)) == 2
    for sandbox in sandboxes:
        sandbox.kill()


DRAWS = {
    "python": "import os, random, secrets, ssl, uuid, numpy\n"
    "print(random.random(), os.urandom(8).hex(), uuid.uuid4(), secrets.token_hex(8), ssl.RAND_bytes(8).hex(), "
    "numpy.random.random(), numpy.random.default_rng().random())",
    "javascript": "console.log(Math.random(), require('crypto').randomUUID(), "
    "require('crypto').randomBytes(8).toString('hex'))",
    "bash": "echo $RANDOM$RANDOM$RANDOM $(openssl rand -hex 8) $(cat /proc/sys/kernel/random/uuid)",
}


def test_two_from_the_pool_draw_different_numbers(pooled: Server) -> None:
    """Copies of one image, with interpreters that lived in it: nothing that is drawn in one is drawn in the other."""
    draws: dict[str, list[list[str]]] = {language: [] for language in DRAWS}
    for _ in range(2):
        fill(pooled)
        with pooled.create("code") as sandbox:
            assert sandbox.way == "pool"
            for language, code in DRAWS.items():
                draws[language].append(sandbox.code.run(code, language=language, check=True).stdout.split())
    for language, (one, other) in draws.items():
        assert one, language
        assert not [number for number in one if number in other], language


def test_those_who_wait_are_nobodys(pooled: Server) -> None:
    fill(pooled)
    assert waiting(pooled)
    assert pooled.sandboxes() == []
    assert pooled.request("GET", "/v1/sandboxes").json()["items"] == [] or all(
        item["state"] != "creating" for item in pooled.request("GET", "/v1/sandboxes").json()["items"]
    )


def test_other_memory_than_the_usual_is_not_taken_from_the_pool(pooled: Server) -> None:
    """What a sandbox sees of its memory was fixed when it was made."""
    fill(pooled)
    with pooled.create(memory="512MiB") as sandbox:
        assert sandbox.way != "pool"
        total_kib = int(sandbox.commands.run("awk '/MemTotal/ {print $2}' /proc/meminfo").stdout)
        assert total_kib == 512 * 1024


def test_a_dead_one_is_not_handed_out(pooled: Server) -> None:
    fill(pooled)
    for entry in waiting(pooled):
        live = entry["live"]
        if isinstance(live, dict):  # one that is just being made has no process yet
            with suppress(ProcessLookupError):
                os.kill(live["pid"], signal.SIGKILL)
    with pooled.create() as sandbox:
        assert sandbox.commands.run("echo alive").stdout == "alive\n"


def pids_of(server: Server, box_id: str) -> list[int]:
    groups = cgroups.detect()
    return groups.pids(HostNames.of(server.data).cgroup(box_id))


@pytest.mark.parametrize("template", ["base", "code"])
def test_a_claim_that_fails_falls_back_and_says_so(make_server: Callable[..., Server], template: str) -> None:
    """The chosen one lives, as far as its process tells, but its inside does not answer: the create succeeds."""
    server = make_server(ATOLL_WARM_SIZE="1")
    fill(server)
    live = [entry for entry in waiting(server) if entry["cpu_base_s"]]  # a shell has not become anything yet
    stopped = [str(entry["box_id"]) for entry in live if entry["template"] == template]
    assert stopped
    for pid in (pid for box_id in stopped for pid in pids_of(server, box_id)):
        os.kill(pid, signal.SIGSTOP)
    with server.create(template) as sandbox:
        assert sandbox.way in ("shell", "image", "boot")
        assert sandbox.commands.run("echo alive").stdout == "alive\n"
        assert 'atoll_claim_failures_total{way="pool"} 1.0' in server.request("GET", "/metrics").text
        wait_until(lambda: not server.boxes() & set(stopped), 30, "what did not answer is gone")


def test_each_of_several_at_once_is_itself_at_its_first_word(pooled: Server) -> None:
    """A claim leaves some of its work for later while others wait; nobody who asks finds it undone."""
    fill(pooled)

    def named(number: int) -> tuple[str, str]:
        with pooled.create(name=f"burst-{number}") as sandbox:
            assert sandbox.commands.list() == []
            said = sandbox.commands.run("hostname; cat /etc/hostname /etc/machine-id").stdout.split()
            return " ".join(said[:2]), said[2]

    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(named, range(6)))
    assert [names for names, _ in found] == [f"burst-{number} burst-{number}" for number in range(6)]
    assert len({machine_id for _, machine_id in found}) == 6


def at_once(server: Server, count: int) -> list[Sandbox]:
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(lambda number: server.create("base", name=f"crowd-{number}"), range(count)))


def filled(make_server: Callable[..., Server], count: int) -> Server:
    """A server with so many of `base` that live."""
    server = make_server(ATOLL_WARM_SIZE=str(count))
    fill(server)
    for _ in range(count):
        server.create("base").kill()
    wait_until(lambda: server.status()["warm"]["base"]["live"] >= count, 60, "the pool is full")
    return server


def test_in_a_crowd_too_a_claim_that_fails_falls_back_and_says_so(make_server: Callable[..., Server]) -> None:
    """Answered before their guests are told, and then the guests say nothing: each gets another box."""
    server = filled(make_server, 3)
    stopped = [str(entry["box_id"]) for entry in waiting(server) if entry["template"] == "base" and entry["cpu_base_s"]]
    for pid in (pid for box_id in stopped for pid in pids_of(server, box_id)):
        os.kill(pid, signal.SIGSTOP)
    sandboxes = at_once(server, 3)
    assert "pool" in {sandbox.way for sandbox in sandboxes}  # so at least one of them was answered before
    for number, sandbox in enumerate(sandboxes):
        assert sandbox.commands.run("hostname").stdout == f"crowd-{number}\n"
    assert 'atoll_claim_failures_total{way="pool"} 3.0' in server.request("GET", "/metrics").text
    wait_until(lambda: not server.boxes() & set(stopped), 30, "what did not answer is gone")
    for sandbox in sandboxes:
        sandbox.kill()


def test_who_was_claimed_in_a_crowd_outlives_a_kill_of_the_server(make_server: Callable[..., Server]) -> None:
    """Killed right after the answers, while guests are still to be told whose they are."""
    server = filled(make_server, 4)
    for _ in range(5):
        sandboxes = at_once(server, 4)
        server.kill()
        untold = [entry["sandbox_id"] for entry in server.journal() if entry["untold"]]
        server.start()
        for number, sandbox in enumerate(sandboxes):
            found = server.connect(sandbox.id)
            assert found.commands.run("hostname; cat /etc/hostname").stdout == f"crowd-{number}\n" * 2
            found.kill()
        if untold:
            return
        wait_until(lambda: server.status()["warm"]["base"]["live"] >= 4, 60, "the pool is full again")
    pytest.fail("no claim was caught between its answer and its telling")


def test_a_burst_larger_than_the_pool_is_served(pooled: Server) -> None:
    fill(pooled)
    sandboxes = [pooled.create() for _ in range(6)]
    assert {sandbox.way for sandbox in sandboxes} & {"shell", "image"}
    for sandbox in sandboxes:
        assert sandbox.commands.run("true").exit_code == 0
        sandbox.kill()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_example_of_many_snippets(pooled: Server) -> None:
    """Fewer than the hundred of the bench: what is looked at is that each has its own sandbox and result."""
    fill(pooled)
    environment = {**os.environ, "ATOLL_URL": pooled.url, "ATOLL_API_KEY": pooled.key}
    example = Path(__file__).parents[2] / "examples/parallel_evaluate.py"
    done = subprocess.run(
        [sys.executable, str(example), "24"], env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("24 snippets in ")
    assert done.stdout.endswith(" 0 wrong\n")
    wait_until(lambda: not pooled.sandboxes(), 20, "each was thrown away")


def test_a_kill_of_the_server_loses_the_pool_and_nothing_else(make_server: Callable[..., Server]) -> None:
    server = make_server(ATOLL_WARM_SIZE="2")
    fill(server)
    kept = server.create(timeout_s=600)
    server.kill()
    before = {str(entry["box_id"]) for entry in waiting(server)}
    server.start()
    assert server.connect(kept.id).commands.run("echo alive").stdout == "alive\n"
    wait_until(lambda: not before & server.boxes(), 10, "those who waited are gone")
    fill(server)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_kill_at_any_moment_of_a_claim_leaves_nothing_half_made(make_server: Callable[..., Server]) -> None:
    """A claim takes some milliseconds; the server is killed at moments that cover it."""
    server = make_server(ATOLL_WARM_SIZE="1")
    for delay_ms in (2, 6, 12):
        fill(server)
        attempt = threading.Thread(target=_create_quietly, args=(server,))
        attempt.start()
        time.sleep(delay_ms / 1000)
        server.kill()
        attempt.join()
        before = {str(entry["box_id"]) for entry in waiting(server)}
        server.start()
        rows = {row["id"]: row["state"] for row in server.rows()}
        assert set(rows.values()) <= {"running", "failed", "killed"}, rows
        wait_until(functools.partial(_are_gone, server, before), 10, "those who waited are gone")
        for sandbox_id in [one for one, state in rows.items() if state == "running"]:
            owned = server.connect(sandbox_id)
            assert owned.commands.run("echo $MINE; hostname").stdout == f"1\n{owned.name}\n"
            owned.kill()
            owned.close()


def _are_gone(server: Server, boxes: set[str]) -> bool:
    return not boxes & server.boxes()


def _create_quietly(server: Server) -> None:
    with suppress(AtollError):
        server.create(timeout_s=600, name="claimed", env={"MINE": "1"}).close()


def test_a_template_says_which_interpreters_are_warm(make_data_dir: Callable[[], Path]) -> None:
    """Bash and R, which start on first use elsewhere; and not Python, which it does not name."""
    data = make_data_dir()
    manifest = data / "pool/templates/code.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "warm": ["bash", "r"]}))
    server = Server(data, {"ATOLL_WARM_SIZE": "1"})
    server.start()
    try:
        wait_until(lambda: server.status()["warm"]["code"]["live"] >= 1, 60, "one of `code` is ready")
        with server.create("code") as sandbox:
            assert sandbox.way == "pool"
            assert {context.language for context in sandbox.code.contexts()} == {"bash", "r"}
            assert sandbox.code.run("cat(6 * 7)", language="r").stdout == "42"
    finally:
        server.close()


def test_python_and_javascript_are_warm_at_create(pooled: Server) -> None:
    """Nobody has asked for either. JavaScript is started anew in each copy, a moment after it came to life."""
    fill(pooled)
    with pooled.create("code") as sandbox:
        assert sandbox.way == "pool"

        def idle() -> set[str]:
            return {context.language for context in sandbox.code.contexts() if context.state == "idle"}

        assert "python" in idle()
        wait_until(lambda: idle() == {"python", "javascript"}, 30, "JavaScript runs, too")
        [copy] = sandbox.fork()
        for one in (sandbox, copy):
            assert one.code.run("console.log(6 * 7)", language="javascript").stdout == "42\n"
        copy.kill()
