from __future__ import annotations

import pytest

from atoll.model import limits
from atoll.model.headroom import is_near, reserve_bytes


@pytest.mark.parametrize("total_bytes", [128 * limits.MIB, limits.GIB, 64 * limits.GIB])
def test_who_looks_from_outside_gives_up_before_the_guard_must_act(total_bytes: int) -> None:
    reserve = reserve_bytes(total_bytes)
    assert reserve >= limits.MEMORY_GUARD_BYTES_MIN
    assert is_near(total_bytes - reserve, total_bytes)
    assert is_near(total_bytes - 2 * reserve + 1, total_bytes)
    assert not is_near(total_bytes - 2 * reserve, total_bytes)
