"""How many sandboxes wait: what is asked for, within the ceiling and the memory."""

from __future__ import annotations

from atoll.model import limits
from atoll.node import warm

PLENTY = 1000 * limits.WARM_BOX_BYTES


def test_without_demand_the_floor_is_kept() -> None:
    assert warm.wanted(0, ceiling=8, available_bytes=PLENTY) == limits.WARM_FLOOR


def test_demand_counts_up_to_the_ceiling() -> None:
    assert warm.wanted(5, ceiling=8, available_bytes=PLENTY) == 5
    assert warm.wanted(50, ceiling=8, available_bytes=PLENTY) == 8


def test_memory_has_the_last_word() -> None:
    assert warm.wanted(5, ceiling=8, available_bytes=int(2 * limits.WARM_BOX_BYTES / limits.WARM_MEMORY_SHARE)) == 2
    assert warm.wanted(5, ceiling=8, available_bytes=0) == 0
    assert warm.wanted(5, ceiling=8, available_bytes=-1) == 0
