"""Swap that set-up makes: what is refused and why, what is on record, and what the kernel's table says."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from atoll.model import limits
from atoll.model.errors import InvalidArgument, Unavailable
from atoll.node import spawn
from atoll.node.install import swap

MIB = limits.MIB
TABLE = """Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority
/dev/zram1                              partition\t262140\t\t0\t\t100
/srv/my\\040data/swapfile               file\t\t1048572\t\t12\t\t10
"""


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Sequence[Any]]:
    """A host on ext4 whose swap programs only say that they were called; swapon makes an area active."""
    called: list[Sequence[Any]] = []
    active: list[swap.Area] = []

    def run(argv: Sequence[Any], **_: Any) -> SimpleNamespace:
        called.append([str(word) for word in argv])
        if argv[0] == "swapon":
            active.append(swap.Area(str(argv[-1]), 1))
        if argv[0] == "swapoff":
            active.clear()
        return SimpleNamespace(exit_code=0, stderr="", text="ext4")

    monkeypatch.setattr(spawn, "run", run)
    monkeypatch.setattr(swap, "active_areas", lambda: active)
    monkeypatch.setattr(limits, "SWAP_DISK_RESERVE_BYTES", 0)
    return called


def programs(called: list[Sequence[Any]]) -> list[str]:
    return [argv[0] for argv in called if argv[0] != "findmnt"]


def test_the_kernels_table_is_read() -> None:
    areas = swap.active_areas(TABLE)
    assert [(area.path, area.size_bytes) for area in areas] == [
        ("/dev/zram1", 262140 * 1024),
        ("/srv/my data/swapfile", 1048572 * 1024),
    ]
    assert swap.active_areas("Filename Type Size Used Priority\n") == []


@pytest.mark.parametrize("kind", ["btrfs", "tmpfs", "overlay", "zfs", "nfs4", ""])
def test_where_a_file_cannot_be_it_says_why(kind: str) -> None:
    assert swap.file_refusal(kind)
    assert "btrfs" in swap.file_refusal("btrfs")
    assert swap.file_refusal("ext4") == swap.file_refusal("xfs") == ""


def test_a_file_is_made_once_and_taken_away(host: list[Sequence[Any]], tmp_path: Path) -> None:
    said: list[str] = []
    swap.ensure(tmp_path, swap.FILE, 64 * MIB, said.append)
    found = (tmp_path / "swapfile").stat()
    assert (found.st_size, found.st_mode & 0o777) == (64 * MIB, 0o600)
    assert programs(host) == ["mkswap", "swapon"]
    swap.ensure(tmp_path, swap.FILE, 64 * MIB, said.append)
    assert programs(host) == ["mkswap", "swapon"], "the second time it does nothing"
    assert "made by set-up" in swap.described(tmp_path, swap.active_areas())
    swap.ensure(tmp_path, swap.FILE, 65 * MIB, said.append)
    assert programs(host)[2:] == ["swapoff", "mkswap", "swapon"], "another size replaces it"
    swap.remove(tmp_path, said.append)
    swap.remove(tmp_path, said.append)
    assert os.listdir(tmp_path) == []
    assert [line.rsplit(" ", 1)[1] for line in said] == ["ready", "there", "away", "ready", "away"]


def test_what_fails_half_way_is_taken_away(host: list[Sequence[Any]], tmp_path: Path, monkeypatch: Any) -> None:
    def fails(argv: Sequence[Any], **_: Any) -> SimpleNamespace:
        code = 1 if argv[0] == "swapon" else 0
        return SimpleNamespace(exit_code=code, stderr="swapon: not permitted", text="ext4")

    monkeypatch.setattr(spawn, "run", fails)
    with pytest.raises(Unavailable, match="not permitted"):
        swap.ensure(tmp_path, swap.FILE, 64 * MIB, _quiet)
    assert os.listdir(tmp_path) == []


def test_what_is_on_record_is_made_active_again(host: list[Sequence[Any]], tmp_path: Path) -> None:
    """After a reboot nothing is active; a zram device of before is another one now."""
    swap.restore(tmp_path, _quiet)
    assert host == []
    (tmp_path / "swap.json").write_text('{"kind":"file","size_bytes":67108864,"device":"","boot_id":""}')
    said: list[str] = []
    swap.restore(tmp_path, said.append)
    assert programs(host) == ["mkswap", "swapon"]
    assert said[0].endswith("active again")
    (tmp_path / "swap.json").write_text("{")
    assert swap.recorded(tmp_path) is None


def test_bounds(host: list[Sequence[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (1, limits.SWAP_BYTES_MAX + 1):
        with pytest.raises(InvalidArgument):
            swap.ensure(tmp_path, swap.FILE, size, _quiet)
    with pytest.raises(Unavailable, match="are free"):
        swap.ensure(tmp_path, swap.FILE, limits.SWAP_BYTES_MAX, _quiet)
    with pytest.raises(Unavailable, match="machine's memory"):
        swap.ensure(tmp_path, swap.ZRAM, limits.SWAP_BYTES_MAX, _quiet)
    assert os.listdir(tmp_path) == []


def _quiet(_: str) -> None:
    pass
