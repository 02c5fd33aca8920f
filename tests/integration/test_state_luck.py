"""Bad luck in the middle of a pause, a snapshot or a fork: a full disk, a kill. Whole or not there, and it runs on."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Callable, Iterator

import pytest

from atoll import Sandbox, Snapshot
from atoll.model import limits
from atoll.model.errors import AtollError
from atoll.node.disks.pool import Pool
from atoll.node.install import template_build, workplace
from atoll.node.install.layout import Layout
from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real

POOL_BYTES = 3 * limits.GIB
IMAGES_BYTES = 64 * limits.MIB
# The number is whole whenever somebody looks, also when there is no room to write the next one.
LOOP = """
i=0
while true; do
    i=$((i+1)); echo $i > /dev/shm/count; cp /dev/shm/count /tmp/next && mv /tmp/next /tmp/count; sleep 0.02
done
"""


@pytest.fixture(scope="module")
def small_disk(layout: Layout, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose data directory is a filesystem of its own, and whose images are on one that is smaller still."""
    folder = tmp_path_factory.mktemp("small")
    image, data = folder / "disk.img", folder / "data"
    data.mkdir()
    with open(image, "wb") as file:
        file.truncate(POOL_BYTES)
    subprocess.run(["mkfs.btrfs", "--quiet", "--data", "single", "--metadata", "single", image], check=True)
    subprocess.run(["mount", "-o", "loop,nodev,nosuid", image, data], check=True)
    try:
        (data / "images").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={IMAGES_BYTES}", "tmpfs", data / "images"], check=True)
        with workplace.turn(layout.cache, print):
            template_build.ensure("busybox", layout, Pool.open(data), print)
        server = Server(data, {})
        server.start()
        yield server
        server.close()
    finally:
        subprocess.run(["umount", "--lazy", data / "images"], check=False)
        subprocess.run(["umount", "--lazy", data], check=True)


def images_room(server: Server, size_bytes: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size_bytes}", server.data / "images"], check=True)


def images(server: Server) -> set[str]:
    """What there is of images, whole or half."""
    return {path.name for folder in ("images", "pool/snapshots") for path in (server.data / folder).iterdir()}


def as_before(server: Server, sandbox: Sandbox) -> None:
    """It runs, answers and counts on; nobody sees anything else, and nothing is left of the attempt."""
    assert sandbox.info().state == "running"
    first = int(sandbox.files.read("/tmp/count", user="root") or 0)
    wait_until(lambda: int(sandbox.files.read("/tmp/count", user="root") or 0) > first, 30, "it goes on")
    assert list(Snapshot.list(url=server.url, api_key=server.key)) == []
    wait_until(lambda: not images(server), 30, "nothing is left")
    wait_until(lambda: len(server.boxes()) == 1, 30, "one box")


@pytest.fixture(scope="module")
def worker(small_disk: Server) -> Iterator[str]:
    """A sandbox that counts, by its id: the server comes and goes."""
    sandbox = small_disk.create("busybox", timeout_s=600)
    sandbox.commands.start(LOOP, user="root")
    wait_until(lambda: sandbox.files.exists("/tmp/count", user="root"), 30)
    sandbox.close()
    yield sandbox.id
    small_disk.connect(sandbox.id).kill()


@pytest.fixture
def busy(small_disk: Server, worker: str) -> Iterator[Sandbox]:
    with contextlib.closing(small_disk.connect(worker)) as sandbox:
        yield sandbox
        sandbox.commands.run("rm -f /dev/shm/ballast", user="root", check=True)


@pytest.mark.parametrize("verb", ["pause", "snapshot"])
def test_a_full_disk_in_the_middle_leaves_it_running(small_disk: Server, busy: Sandbox, verb: str) -> None:
    """Its memory is more than there is room for, so that the disk is full in the middle and not at the beginning."""
    busy.commands.run("yes ballast | head -c 150000000 > /dev/shm/ballast", user="root", check=True)
    with pytest.raises(AtollError) as caught:
        getattr(busy, verb)()
    assert caught.value.code == "disk_pool_full"
    as_before(small_disk, busy)


def test_a_fork_needs_no_room_for_its_memory(small_disk: Server, busy: Sandbox) -> None:
    """What copies are made from never reaches the disk."""
    busy.commands.run("yes ballast | head -c 150000000 > /dev/shm/ballast", user="root", check=True)
    [copy] = busy.fork(1)
    with contextlib.closing(copy):
        assert copy.commands.run("wc -c < /dev/shm/ballast", user="root").stdout.strip() == "150000000"
        copy.kill()
    as_before(small_disk, busy)


def test_with_room_again_it_works(small_disk: Server, busy: Sandbox) -> None:
    busy.commands.run("yes ballast | head -c 150000000 > /dev/shm/ballast", user="root", check=True)
    with pytest.raises(AtollError):
        busy.pause()
    images_room(small_disk, limits.GIB)
    try:
        assert busy.pause().state == "paused"
        assert busy.resume().state == "running"
        as_before(small_disk, busy)
    finally:
        images_room(small_disk, IMAGES_BYTES)


def is_taking(server: Server) -> bool:
    return bool(images(server))


def is_making(server: Server) -> bool:
    return len(server.boxes()) > 1


@pytest.mark.parametrize("moment", [is_taking, is_making])
def test_a_kill_in_the_middle_of_a_fork(small_disk: Server, worker: str, moment: Callable[[Server], bool]) -> None:
    """The sandbox runs, and of each copy there is all or nothing."""
    server = small_disk
    attempt = threading.Thread(target=fork_quietly, args=(server.connect(worker),))
    attempt.start()
    wait_until(lambda: moment(server), 30, "the moment has come")
    server.kill()
    attempt.join()
    server.start()
    wait_until(lambda: all(row["state"] in ("running", "failed", "killed") for row in server.rows()), 30)
    for row in server.rows():
        if row["state"] == "running" and row["id"] != worker:
            copy = server.connect(row["id"])
            assert copy.commands.run("cat /dev/shm/count", user="root").exit_code == 0
            copy.kill()
    with contextlib.closing(server.connect(worker)) as sandbox:
        as_before(server, sandbox)


def fork_quietly(sandbox: Sandbox) -> None:
    with contextlib.suppress(AtollError):
        for copy in sandbox.fork(3):
            copy.close()
