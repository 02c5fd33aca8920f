"""The layouts of the btrfs calls have the sizes that the kernel's headers give them."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.node.disks import btrfs


def test_structures_have_the_kernels_sizes() -> None:
    assert btrfs._VOL_ARGS.size == btrfs._VOL_ARGS_V2.size == btrfs._LOOKUP.size == 4096
    assert btrfs._LIMIT.size == 48
    assert btrfs._SEARCH_KEY.size == 104
    assert btrfs._SEARCH_HEADER.size == 32


def test_call_numbers_are_the_kernels() -> None:
    assert btrfs._SNAP_CREATE_V2 == 0x50009417
    assert btrfs._SNAP_DESTROY == 0x5000940F
    assert btrfs._TREE_SEARCH == 0xD0009411
    assert btrfs._QUOTA_CTL == 0xC0109428
    assert btrfs._QGROUP_LIMIT == 0x8030942B


def test_other_filesystems_are_told_apart() -> None:
    assert not btrfs.is_btrfs(Path("/proc"))
    assert not btrfs.is_subvolume(Path("/proc/no-such-thing"))


def test_names_are_bounded() -> None:
    with pytest.raises(OSError, match="too long"):
        btrfs._name(Path("/x") / ("n" * 256))
