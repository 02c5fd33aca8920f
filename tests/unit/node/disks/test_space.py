"""How much of a disk is its own: a walk that can be ended, in any folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.node.disks import space


class _EndedError(Exception):
    pass


def test_a_walk_ends_in_the_next_folder(tmp_path: Path) -> None:
    (tmp_path / "one/two").mkdir(parents=True)
    looks: list[int] = []

    def look() -> None:
        looks.append(1)
        if len(looks) == 3:
            raise _EndedError

    with pytest.raises(_EndedError):
        space.of_disk(tmp_path, look)
    assert len(looks) == 3
