"""A full disk, or kill -9, at each step of what is done to state: whole or not there, and it works when tried again.

`make test` takes one step of each operation; with ATOLL_FAULTS=all (`make soak`) it is all of them, of an import the
beginning and the end and some between.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from atoll import Snapshot
from atoll.model import limits
from atoll.model.errors import AtollError
from atoll.node.disks.pool import Pool
from atoll.node.install import template_build, workplace
from atoll.node.install.layout import Layout
from atoll.testing.faults import FaultyServer, Mode
from tests import fault_stage
from tests.fault_stage import CASES, Case, Stage

pytestmark = pytest.mark.real

ALL = os.environ.get("ATOLL_FAULTS") == "all"
EVERY_ONE_MAX = 60
ROOMLESS: tuple[Mode, ...] = ("full", "once") if ALL else ("full",)  # a disk that stays full is the harder case
# `make test` has other tests of bad luck for these: test_state, test_state_luck, test_snapshot_files.
TRIED_ELSEWHERE = {"pause", "resume", "snapshot", "fork"}
KILLED_ELSEWHERE = {*TRIED_ELSEWHERE, "export", "import", "rollback", "volume snapshot", "volume clone"}


def chosen(elsewhere: set[str]) -> pytest.MarkDecorator:
    cases = [case for case in CASES if ALL or case.name not in elsewhere]
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


@pytest.fixture(scope="module")
def stage(
    layout: Layout, make_data_dir: Callable[[], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    data = make_data_dir()
    with workplace.turn(layout.cache, print):
        template_build.ensure("busybox", layout, Pool.open(data), print)
    server = FaultyServer(data, {})
    server.start()
    yield Stage(server, tmp_path_factory.mktemp("files"))
    server.close()


def points(steps: int) -> list[int]:
    """Which of so many steps: one in the middle, or both ends and a spread between."""
    if not ALL:
        return [(steps + 1) // 2]
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


def swept(stage: Stage, case: Case, mode: Mode) -> set[str]:
    steps = fault_stage.steps_of(stage, case, mode)
    return {fault_stage.attempt(stage, case, mode, at) for at in points(steps)}


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
