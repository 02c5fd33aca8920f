"""A real pool on a real loop device: copies, quotas, clean-up, interruption."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll.model import limits
from atoll.model.errors import Conflict, NotFound, Unavailable
from atoll.node import spawn
from atoll.node.disks import btrfs
from atoll.node.disks.pool import FOLDERS, Pool

pytestmark = pytest.mark.real

SIZE_BYTES = limits.POOL_BYTES_MIN


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    opened = Pool.open(tmp_path / "data", SIZE_BYTES)
    yield opened
    Pool.open(tmp_path / "data").remove()


@pytest.fixture
def template(pool: Pool) -> Path:
    path = pool.root / "templates/small"
    btrfs.subvolume_create(path)
    (path / "hello").write_bytes(os.urandom(4 * limits.MIB))
    btrfs.read_only_set(path, True)
    return pool.template_path("small")


def test_opening_again_changes_nothing(pool: Pool) -> None:
    (pool.root / "volumes/mark").write_text("x")
    again = Pool.open(pool.root.parent)
    assert again == pool
    assert (again.root / "volumes/mark").read_text() == "x"
    assert all((pool.root / folder).is_dir() for folder in FOLDERS)
    assert len(_loop_devices(pool)) == 1


def test_mount_options_keep_devices_and_setuid_out(pool: Pool) -> None:
    line = next(line for line in Path("/proc/mounts").read_text().splitlines() if f" {pool.root} " in line)
    assert {"nodev", "nosuid", "noatime"} <= set(line.split()[3].split(","))


def test_an_interrupted_mkfs_is_begun_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "pool.img.tmp").write_bytes(b"half a filesystem")
    opened = Pool.open(data, SIZE_BYTES)
    assert not (data / "pool.img.tmp").exists()
    opened.remove()


def test_closing_frees_the_loop_device_and_keeps_the_data(pool: Pool, template: Path) -> None:
    pool.disk_create("s1", template, 0)
    pool.close()
    _wait_loop_device_gone(pool)
    assert not os.path.ismount(pool.root)
    assert Pool.open(pool.root.parent).disks() == ["s1"]


def test_a_disk_is_a_writable_copy(pool: Pool, template: Path) -> None:
    disk = pool.disk_create("s1", template, 0)
    assert (disk / "hello").read_bytes() == (template / "hello").read_bytes()
    (disk / "hello").write_text("changed")
    assert (template / "hello").stat().st_size == 4 * limits.MIB
    with pytest.raises(OSError, match="Read-only"):
        (template / "new").write_text("x")


def test_the_quota_holds_and_does_not_count_the_template(pool: Pool, template: Path) -> None:
    disk = pool.disk_create("s1", template, 16 * limits.MIB)
    with pytest.raises(OSError, match="quota") as caught:
        _fill(disk / "big", 32)
    assert caught.value.errno == errno.EDQUOT
    assert (disk / "big").stat().st_size >= 12 * limits.MIB
    assert 12 * limits.MIB <= pool.disk_usage_bytes("s1") <= 16 * limits.MIB
    other = pool.disk_create("s2", template, 0)
    _fill(other / "big", 32)
    assert pool.disk_usage_bytes("s2") >= 32 * limits.MIB


def test_a_quota_can_be_raised(pool: Pool, template: Path) -> None:
    disk = pool.disk_create("s1", template, 16 * limits.MIB)
    btrfs.quota_limit(disk, 64 * limits.MIB)
    _fill(disk / "big", 32)


def test_deleting_is_idempotent_and_frees_the_space(pool: Pool, template: Path) -> None:
    disk = pool.disk_create("s1", template, 0)
    _fill(disk / "big", 64)
    btrfs.sync(pool.root)
    used = pool.free_bytes()
    id_ = btrfs.subvolume_id(disk)
    pool.disk_delete("s1")
    pool.disk_delete("s1")
    assert pool.disks() == []
    assert btrfs.wait_cleaned(pool.root, [id_], timeout_s=30)
    assert pool.free_bytes() > used
    assert not (btrfs._sysfs(pool.root) / "qgroups" / f"0_{id_}").exists()


def test_deleting_takes_nested_subvolumes_along(pool: Pool, template: Path) -> None:
    disk = pool.disk_create("s1", template, 0)
    (disk / "deep/er").mkdir(parents=True)
    btrfs.subvolume_create(disk / "deep/er/inner")
    btrfs.subvolume_create(disk / "deep/er/inner/most")
    btrfs.snapshot_create(template, disk / "copy", read_only=True)
    pool.disk_delete("s1")
    assert pool.disks() == []


def test_errors_are_typed(pool: Pool, template: Path) -> None:
    pool.disk_create("s1", template, 0)
    with pytest.raises(Conflict) as conflict:
        pool.disk_create("s1", template, 0)
    assert conflict.value.code == "disk_exists"
    with pytest.raises(NotFound):
        pool.disk_create("s2", pool.root / "templates/none", 0)
    with pytest.raises(NotFound):
        pool.disk_usage_bytes("s3")
    assert pool.disks() == ["s1"]


def test_a_full_pool_says_so(pool: Pool, template: Path) -> None:
    with pytest.raises(OSError, match="No space"):
        _allocate(pool.root / "volumes/all", 2 * SIZE_BYTES // limits.MIB)
    with pytest.raises(Unavailable) as refused:
        pool.disk_create("s1", template, 0)
    assert refused.value.code == "disk_pool_full"
    assert pool.disks() == []


def test_too_small_a_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as refused:
        Pool.open(tmp_path / "data", limits.MIB)
    assert refused.value.code == "disk_pool_full"
    assert not (tmp_path / "data/pool.img").exists()


def test_a_copy_of_the_mount_elsewhere_does_not_stop_us(tmp_path: Path) -> None:
    """On hosts with private mounts a new mount namespace keeps what we unmount; the device goes when that ends."""
    opened = Pool.open(tmp_path / "data", SIZE_BYTES)
    (opened.root / "volumes/mark").write_text("x")
    holder = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sleep", "60"])
    try:
        while os.readlink(f"/proc/{holder.pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt"):
            time.sleep(0.01)
        opened.close()
        assert not os.path.ismount(opened.root)
        again = Pool.open(tmp_path / "data")
        assert (again.root / "volumes/mark").read_text() == "x"
    finally:
        holder.kill()
        holder.wait()
    again.close()
    _wait_loop_device_gone(again)
    Pool.open(tmp_path / "data").remove()


def _fill(path: Path, mib: int) -> None:
    block = os.urandom(limits.MIB)
    with open(path, "wb", buffering=0) as file:
        for _ in range(mib):
            file.write(block)
        os.fsync(file.fileno())


def _allocate(path: Path, mib: int) -> None:
    with open(path, "wb") as file:
        for n in range(mib // 64):
            os.posix_fallocate(file.fileno(), n * 64 * limits.MIB, 64 * limits.MIB)


def _wait_loop_device_gone(pool: Pool) -> None:
    # Whatever else runs on this host may hold a copy of the mount for a moment.
    until_s = time.monotonic() + 60
    while _loop_devices(pool):
        assert time.monotonic() < until_s, "the loop device is still there"
        time.sleep(0.05)


def _loop_devices(pool: Pool) -> list[str]:
    assert pool.image is not None
    return spawn.run(["losetup", "--noheadings", "--output", "NAME", "--associated", pool.image]).text.split()
