"""Slots: the same list for every sandbox, whatever is behind them."""

from __future__ import annotations

from pathlib import Path

from atoll.model import limits
from atoll.model.volume import VolumeMount
from atoll.node.disks.pool import Pool
from atoll.node.volumes import binds, placed

POOL = Pool(Path("/pool"), None)
MOUNTS = (VolumeMount("vo1", "/a"), VolumeMount("vo2", "/b", read_only=True), VolumeMount("vo3", "/c"))


def test_only_what_is_behind_a_slot_differs() -> None:
    empty, used = binds(POOL, ()), binds(POOL, MOUNTS)
    assert [(one.target, one.read_only) for one in empty] == [(one.target, one.read_only) for one in used]
    assert len(empty) == 2 * limits.VOLUME_SLOTS
    assert len({one.source for one in empty}) == 1


def test_each_volume_has_its_own_slot_and_kind() -> None:
    behind = {one.target: (one.source.name, one.read_only) for one in binds(POOL, MOUNTS)}
    seen = {path: behind[slot] for slot, path in placed(MOUNTS)}
    assert seen == {"/a": ("vo1", False), "/c": ("vo3", False), "/b": ("vo2", True)}
