"""A full disk, or kill -9, at each step of what is done to state: whole or not there, and it works when tried again.

`make test` takes one step of each operation; with ATOLL_FAULTS=all (`make soak`) it is all of them, of one with many
the beginning and the end and some between; with a number so many, spread over the operation.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from atoll import Snapshot
from atoll.model import limits
from atoll.model.errors import AtollError
from atoll.node.disks import btrfs
from atoll.node.disks.pool import Pool
from atoll.node.install import template_build, workplace
from atoll.node.install.layout import Layout
from atoll.testing.faults import FaultyServer, Mode
from tests import fault_stage
from tests.fault_stage import CASES, MOVING_IN, Case, Stage

pytestmark = pytest.mark.real

FAULTS = os.environ.get("ATOLL_FAULTS", "")
ALL = FAULTS != ""
EVERY_ONE_MAX = 60
ROOMLESS: tuple[Mode, ...] = ("full", "once") if ALL else ("full",)  # a disk that stays full is the harder case
# `make test` has other tests of bad luck for these: test_state, test_state_luck, test_snapshot_files.
TRIED_ELSEWHERE = {"pause", "resume", "snapshot", "fork"}
WOKEN = [case for case in MOVING_IN if ALL or case.name == "resume"]
KILLED_ELSEWHERE = {*TRIED_ELSEWHERE, "export", "import", "rollback", "volume snapshot", "volume clone", "volume write"}


def chosen(elsewhere: set[str]) -> pytest.MarkDecorator:
    cases = [case for case in CASES if ALL or case.name not in elsewhere]
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


@pytest.fixture(scope="module")
def data(layout: Layout, make_data_dir: Callable[[], Path]) -> Callable[[], Path]:
    def make() -> Path:
        folder = make_data_dir()
        with workplace.turn(layout.cache, print):
            template_build.ensure("busybox", layout, Pool.open(folder), print)
        return folder

    return make


@pytest.fixture(scope="module")
def stage(data: Callable[[], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    server = FaultyServer(data(), {})
    server.start()
    yield Stage(server, tmp_path_factory.mktemp("files"))
    server.close()


@pytest.fixture(scope="module")
def pooled(data: Callable[[], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """With a box that waits; of the template that is small, so that there soon is another."""
    folder = data()
    for manifest in (folder / "pool/templates").glob("*.json"):
        if manifest.stem != "busybox":
            manifest.unlink()
            btrfs.subvolume_delete(manifest.with_suffix(""))
    server = FaultyServer(folder, {"ATOLL_WARM_SIZE": "1"})
    server.start()
    yield Stage(server, tmp_path_factory.mktemp("pooled"), pooled=True)
    server.close()


def points(steps: int) -> list[int]:
    """Which of so many steps: one in the middle, some, or both ends and a spread between."""
    if not ALL:
        return [(steps + 1) // 2]
    if FAULTS.isdecimal():
        some = min(int(FAULTS), steps)
        return [1 + index * (steps - 1) // max(1, some - 1) for index in range(some)]
    ends = EVERY_ONE_MAX // 3
    spread = range(1, steps + 1, max(1, steps // ends))
    return sorted({*range(1, min(ends, steps) + 1), *range(max(1, steps - ends), steps + 1), *spread})


@chosen(TRIED_ELSEWHERE)
@pytest.mark.parametrize("mode", ROOMLESS)
def test_a_disk_without_room_at_a_step_leaves_nothing_half(stage: Stage, case: Case, mode: Mode) -> None:
    codes = swept(stage, case, mode)
    assert codes <= {"disk_pool_full", "disk_full", "database_unavailable", ""}, codes


@chosen(KILLED_ELSEWHERE)
def test_a_server_that_dies_at_a_step_leaves_nothing_half(stage: Stage, case: Case) -> None:
    codes = swept(stage, case, "kill")
    assert codes, "it has steps"


@pytest.mark.parametrize("case", WOKEN, ids=lambda case: case.name)
@pytest.mark.parametrize("mode", ROOMLESS)
def test_no_room_while_a_waiting_box_is_moved_into_leaves_nothing_half(pooled: Stage, case: Case, mode: Mode) -> None:
    codes = swept(pooled, case, mode)
    assert codes <= {"disk_pool_full", "disk_full", "database_unavailable", ""}, codes


@pytest.mark.parametrize("case", WOKEN, ids=lambda case: case.name)
def test_a_server_that_dies_while_a_waiting_box_is_moved_into_leaves_nothing_half(pooled: Stage, case: Case) -> None:
    assert swept(pooled, case, "kill"), "it has steps"


def swept(stage: Stage, case: Case, mode: Mode) -> set[str]:
    steps = fault_stage.steps_of(stage, case, mode)
    return {fault_stage.attempt(stage, case, mode, at) for at in points(steps)}


def test_what_changed_until_now_without_room_is_told_as_such(stage: Stage) -> None:
    """It needs a disk that stands still for as long as somebody looks."""
    with stage.sandbox() as sandbox:
        before = set((stage.server.data / "pool/snapshots").iterdir())
        stage.server.plan.set("once", 1)
        with pytest.raises(AtollError) as caught:
            sandbox.diff(stage.snapshot)
        stage.server.plan.set("off")
        assert caught.value.code == "disk_pool_full"
        assert set((stage.server.data / "pool/snapshots").iterdir()) == before
        assert "/root/big" in {item.path for item in sandbox.diff(stage.snapshot).items}


def test_a_file_that_has_no_room_inside_is_not_half_restored(stage: Stage) -> None:
    """The sandbox's own disk is full, in the middle of the file; what was there under its name stays."""
    big = 24 * limits.MIB
    with stage.server.create("busybox", timeout_s=600, disk="128MB") as sandbox:
        sandbox.files.write("/root/kept", "k" * big, user="root")
        snapshot = sandbox.snapshot(memory=False)
        sandbox.files.write("/root/kept", "now", user="root")
        full = sandbox.commands.run("dd if=/dev/zero of=/root/ballast bs=1M", user="root")
        assert full.exit_code != 0
        with pytest.raises(AtollError) as caught:
            sandbox.restore_file(snapshot, "/root/kept")
        assert caught.value.code in ("disk_full", "quota"), caught.value.code
        assert sandbox.files.read("/root/kept", user="root") == "now"
        assert sandbox.commands.run("ls -A /root", user="root").stdout.split() == ["ballast", "kept"]
        sandbox.commands.run("rm /root/ballast", user="root", check=True)
        assert sandbox.restore_file(snapshot, "/root/kept") == big
    Snapshot.delete(snapshot, **stage.own)
