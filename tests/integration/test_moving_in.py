"""A sandbox that wakes up in a box which waited: the box is another one, all that its owner knows is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from atoll import Sandbox
from atoll.node.disks import btrfs
from atoll.node.names import HostNames
from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def pooled(make_data_dir: Callable[[], Path]) -> Iterator[Server]:
    server = Server(make_data_dir(), {"ATOLL_WARM_SIZE": "1"})
    server.start()
    yield server
    server.close()


@pytest.fixture
def sandbox(pooled: Server) -> Iterator[Sandbox]:
    _wait_full(pooled)
    with pooled.create("base", disk="64MiB", timeout_s=600) as made:
        made.files.write("kept", "on its disk")
        made.commands.start("X=held; while :; do sleep 0.1; echo $X >> beats; done")
        yield made


def _wait_full(server: Server) -> None:
    def full() -> bool:
        warm = server.status()["warm"]
        return all(warm.get(one, {"live": 0})["live"] and warm[one]["shells"] for one in ("base", "code"))

    wait_until(full, 60, "the pool is full")


def _waiting(server: Server) -> set[str]:
    return {entry["box_id"] for entry in server.journal() if not entry["sandbox_id"]}


def _disks(server: Server) -> set[str]:
    return {path.name for path in (server.data / "pool/sandboxes").iterdir()}


def _is_itself(server: Server, sandbox: Sandbox) -> None:
    """Its files, its programs and its quota are there, and what it writes is on the disk that has its box's name."""
    assert sandbox.files.read("kept") == "on its disk"
    sandbox.files.write("beats", "")
    wait_until(lambda: "held" in sandbox.files.read("beats"), 10, "its program goes on")
    disk = server.data / "pool/sandboxes" / server.box_of(sandbox.id)
    assert (disk / "home/user/kept").read_text() == "on its disk"
    assert sandbox.commands.run("dd if=/dev/zero of=big bs=1M count=100; rm big").stderr.count("exceeded") == 1
    wait_until(lambda: not any(name.endswith("-aside") for name in _disks(server)), 10, "the other disk is gone")


def test_a_paused_sandbox_wakes_up_in_a_box_that_waited(pooled: Server, sandbox: Sandbox) -> None:
    for _ in range(2):
        sandbox.pause()
        _wait_full(pooled)
        waited = _waiting(pooled)
        sandbox.resume()
        assert pooled.box_of(sandbox.id) in waited
        _is_itself(pooled, sandbox)


def test_a_fork_begins_in_a_box_that_waited(pooled: Server, sandbox: Sandbox) -> None:
    _wait_full(pooled)
    waited = _waiting(pooled)
    forks = sandbox.fork(2)
    assert waited & {pooled.box_of(fork.id) for fork in forks}
    for fork in forks:
        _is_itself(pooled, fork)
        fork.kill()
    _is_itself(pooled, sandbox)


def test_a_box_that_is_of_no_use_costs_time_and_nothing_else(pooled: Server, sandbox: Sandbox) -> None:
    sandbox.pause()
    _wait_full(pooled)
    waited = _waiting(pooled)
    for state in HostNames.of(pooled.data).runsc_root.glob("*.state"):
        state.write_text("{}")  # what runsc knows of them: nobody finds the process that serves their disk
    sandbox.resume()
    assert pooled.box_of(sandbox.id) not in waited
    _is_itself(pooled, sandbox)


def test_a_disk_that_was_set_aside_when_the_server_was_killed_is_gone_at_the_next_start(pooled: Server) -> None:
    with pooled.create("base", timeout_s=600) as sandbox:
        box = pooled.box_of(sandbox.id)
    disks = pooled.data / "pool/sandboxes"
    aside = f"{box}-aside"
    pooled.kill()
    btrfs.snapshot_create(pooled.data / "pool/templates/base", disks / aside)
    pooled.start()
    assert aside not in _disks(pooled)
