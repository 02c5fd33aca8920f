"""Limits become the right files on both versions, and groups go away with what is in them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from atoll.model import limits
from atoll.model.resources import Resources
from atoll.node import cgroups


def test_settings_of_version_2() -> None:
    values = cgroups.settings(Resources(cpu=0.5, memory_bytes=limits.GIB, pids=100), 2, limits.RUNTIME_MEMORY_BYTES)
    assert values["cpu.max"] == "50000 100000"
    assert values["memory.max"] == str(limits.GIB + limits.RUNTIME_MEMORY_BYTES)
    assert values["pids.max"] == str(200 + limits.RUNTIME_TASKS)


def test_settings_of_version_1_mean_the_same() -> None:
    wanted = Resources(cpu=2, memory_bytes=limits.GIB, pids=64)
    one, two = cgroups.settings(wanted, 1, 0), cgroups.settings(wanted, 2, 0)
    assert one["cpu.cfs_quota_us"] == two["cpu.max"].split()[0]
    assert one["memory.limit_in_bytes"] == two["memory.max"]
    assert one["pids.max"] == two["pids.max"]


@pytest.mark.parametrize("cpu", [0.001, 0.05, 255.5])
def test_a_quota_is_never_below_what_the_kernel_takes(cpu: float) -> None:
    assert int(cgroups.settings(Resources(cpu=cpu), 1, 0)["cpu.cfs_quota_us"]) >= 1000


def test_version_2_on_a_tree_of_files(tmp_path: Path) -> None:
    """The interface of version 2 is plain files; a folder of files shows what would be written."""
    (tmp_path / "cgroup.controllers").touch()
    (tmp_path / "cgroup.subtree_control").touch()
    (tmp_path / "atoll").mkdir()
    (tmp_path / "atoll" / "cgroup.subtree_control").touch()
    (tmp_path / "atoll" / "bx").mkdir()
    for name in ("cpu.max", "memory.max", "pids.max", "cgroup.freeze"):
        (tmp_path / "atoll" / "bx" / name).touch()
    groups = cgroups.detect(tmp_path)
    assert groups.version == 2
    groups.create("atoll/bx", Resources(cpu=1))
    groups.freeze("atoll/bx")
    folder = tmp_path / "atoll" / "bx"
    assert (folder / "cpu.max").read_text() == "100000 100000"
    assert (folder / "cgroup.freeze").read_text() == "1"
    assert (tmp_path / "atoll" / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    (folder / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    (folder / "cpu.stat").write_text("usage_usec 1500000\n")
    (folder / "memory.current").write_text("4096\n")
    (folder / "pids.current").write_text("7\n")
    assert groups.oom_kills("atoll/bx") == 2
    assert groups.usage("atoll/bx") == cgroups.Usage(cpu_s=1.5, memory_bytes=4096, processes=7)
    assert groups.children("atoll") == ["bx"]


@pytest.mark.real
def test_a_real_group_limits_and_ends_its_processes() -> None:
    groups = cgroups.detect()
    name = f"atoll-test{os.getpid()}/bx"
    groups.create(name, Resources(pids=40))
    child = subprocess.Popen(["sleep", "100"])
    try:
        for folder in Path("/sys/fs/cgroup").glob(f"*/{name}"):
            (folder / "cgroup.procs").write_text(str(child.pid))
        assert groups.pids(name) == [child.pid] or groups.version == 2
        for yes in (True, False):  # the file is as old as Linux 5.15
            groups.give_way(name, yes)
            found = [file.read_text() for file in Path("/sys/fs/cgroup").glob(f"*/{name}/cpu.idle")]
            assert found in ([], [f"{yes:d}\n"])
        groups.freeze(name)
        groups.remove(name)
        assert child.wait(5) == -9
        assert groups.children(f"atoll-test{os.getpid()}") == []
        groups.remove(name)
    finally:
        child.kill()
        groups.remove(name)
        groups.remove(f"atoll-test{os.getpid()}")


def test_a_group_that_goes_while_it_is_read_counts_as_nothing(tmp_path: Path) -> None:
    """The kernel answers with another error than that of a file that is not there; a folder does so, too."""
    assert cgroups._field(tmp_path, "oom_kill") == 0
    assert cgroups._number(tmp_path) == 0
    assert cgroups._field(tmp_path / "gone", "oom_kill") == 0


def test_a_total_that_cannot_be_read_is_not_taken_for_zero(tmp_path: Path) -> None:
    """Zero would be a counter that has begun anew, and all of it would be counted once more afterwards."""
    group = tmp_path / "box"
    group.mkdir()
    assert cgroups.CgroupsV2(tmp_path).cpu_s("box") == 0, "gone is gone"
    (group / "cpu.stat").mkdir()
    with pytest.raises(IsADirectoryError):
        cgroups.CgroupsV2(tmp_path).cpu_s("box")
    tree = cgroups.Tree(tmp_path, frozenset({"cpuacct"}))
    (group / "cpuacct.usage").mkdir()
    with pytest.raises(IsADirectoryError):
        cgroups.CgroupsV1([tree]).cpu_s("box")


def test_a_gauge_reads_again_and_again_and_says_when_its_group_is_gone(tmp_path: Path) -> None:
    group = tmp_path / "box"
    group.mkdir()
    (group / "memory.current").write_text("4096\n")
    (group / "memory.stat").write_text("anon 1000\nfile 3000\nshmem 24\n")
    gauge = cgroups.CgroupsV2(tmp_path).memory_gauge("box")
    assert (gauge.used_bytes(), gauge.held_bytes()) == (4096, 1024)
    (group / "memory.current").write_text("8192\n")
    assert gauge.used_bytes() == 8192
    gauge.close()
    gauge.close()
    (group / "memory.current").unlink()
    with pytest.raises(FileNotFoundError):
        gauge.used_bytes()
