"""How often something may happen."""

from __future__ import annotations

from atoll.node.egress.pace import Pace


def test_some_at_once_then_so_many_a_second_and_after_a_rest_some_at_once_again() -> None:
    pace = Pace(10, 5)
    assert [pace.take(100.0) for _ in range(5)] == [0.0] * 5
    assert abs(pace.take(100.0) - 0.1) < 1e-6
    assert abs(pace.take(100.1) - 0.1) < 1e-6, "whoever waited as told has the next one only"
    assert [pace.take(200.0) for _ in range(5)] == [0.0] * 5
    assert pace.take(200.0) > 0
