"""Sleep and waking where the host is another meanwhile: restarted, with another runtime, or with the memory in swap."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from atoll import Sandbox
from atoll.model import limits
from atoll.model.errors import AtollError, Conflict
from atoll.node import admission, cgroups, inventory
from atoll.node.install import swap
from atoll.node.install.layout import Layout
from atoll.node.names import NETNS_FOLDER, HostNames
from atoll.node.network import namespaces
from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real

MakeServer = Callable[..., Server]
SWAP_BYTES = limits.GIB
LOOP = "i=0; while true; do i=$((i+1)); echo $i > next; mv next count; sleep 0.02; done"
FRAME = "import pandas; frame = pandas.DataFrame({'n': range(200_000)})"


def restart_machine(server: Server) -> None:
    """All that a restart takes from a server that was killed: what is in memory, under the names that are its own."""
    names, groups = HostNames.of(server.data), cgroups.detect()
    for box in groups.children(names.cgroup_parent):
        groups.kill(names.cgroup(box))
        groups.remove(names.cgroup(box))
    inventory.unmount_below(server.data)
    for path in NETNS_FOLDER.glob(f"{names.netns_prefix}*"):
        namespaces.remove(path.name)
    (server.data / "boot").write_text("another\n")


def test_a_pause_outlives_a_restart_of_the_machine(make_server: MakeServer) -> None:
    """What ran beside it does not, and says so."""
    server = make_server()
    sandbox, other = server.create(timeout_s=600), server.create(timeout_s=600)
    sandbox.files.write("note", "kept")
    sandbox.commands.start(LOOP)
    wait_until(lambda: sandbox.files.exists("count"), 5)
    sandbox.pause()
    wait_until(lambda: server.boxes() == {server.box_of(other.id)}, 10, "nothing of it runs")
    server.kill()
    restart_machine(server)
    server.start()
    assert server.connect(other.id).info().end_reason == "node_lost"
    sandbox = server.connect(sandbox.id)
    assert sandbox.info().state == "paused"
    sandbox.resume()
    assert sandbox.files.read("note") == "kept"
    first = int(sandbox.files.read("count"))
    wait_until(lambda: int(sandbox.files.read("count") or 0) > first, 5, "the loop goes on")


def test_a_pause_of_another_runtime_says_so_and_its_disk_can_be_booted(make_server: MakeServer) -> None:
    """As after an upgrade of the runtime: the memory is of no use, and nothing is lost before its owner says so."""
    server = make_server()
    sandbox = server.create(timeout_s=600)
    sandbox.files.write("note", "kept")
    sandbox.pause()
    (manifest,) = (server.data / "images").glob("pa*/manifest.json")
    of_now = json.loads(manifest.read_text())
    assert of_now["runtime_version"]
    manifest.write_text(json.dumps({**of_now, "runtime_version": "runsc of last year"}))
    with pytest.raises(Conflict) as caught:
        sandbox.resume()
    assert caught.value.code == "image_mismatch"
    assert sandbox.info().state == "paused"
    assert sandbox.resume(memory=False).state == "running"
    assert sandbox.files.read("note") == "kept"


@pytest.fixture
def swapped(layout: Layout) -> Iterator[None]:
    """Swap on this host: its own, or some that is made for this."""
    assert layout
    if admission.host_swap_bytes():
        yield
        return
    data = Path("/var/lib/atoll-swap-standby-test")
    data.mkdir(mode=0o700, exist_ok=True)
    try:
        if not any(_ensured(data, kind) for kind in (swap.ZRAM, swap.FILE)):
            pytest.skip("this host can have no swap")
        yield
    finally:
        swap.remove(data, print)
        data.rmdir()


def _ensured(data: Path, kind: str) -> bool:
    try:
        swap.ensure(data, kind, SWAP_BYTES, print)
    except AtollError:
        return False
    return True


@pytest.mark.usefixtures("swapped")
def test_one_in_standby_goes_to_swap_and_wakes_with_all_that_it_had(make_server: MakeServer) -> None:
    server = make_server()
    sandbox: Sandbox = server.create("code", timeout_s=600)
    sandbox.code.run(FRAME, check=True)
    groups = cgroups.detect()
    group = HostNames.of(server.data).cgroup(server.box_of(sandbox.id))
    awake_bytes = groups.usage(group).memory_bytes
    sandbox.standby()
    wait_until(lambda: groups.usage(group).memory_bytes < awake_bytes / 2, 20, "its memory goes to swap")
    assert sandbox.info().state == "standby"
    assert sandbox.code.run("int(frame['n'].sum())").text == str(sum(range(200_000)))
    assert sandbox.info().state == "running"
