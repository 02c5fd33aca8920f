"""Intervals follow one another without gap or overlap, whatever the moments at which somebody looks."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from atoll.model import limits
from atoll.model.usage import Interval, Meter, Prices, Sample, Usage, hour_of, measure

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
STEPS = st.lists(st.tuples(st.integers(-1000, 200_000), st.floats(0, 1e6), st.booleans()), max_size=20)


@given(STEPS)
def test_every_moment_is_counted_once(steps: list[tuple[int, float, bool]]) -> None:
    """The clock may be set back, samples may be missing: time that has passed is counted once, in pieces of an hour."""
    meter = Meter("sb", "me", START, Sample())
    now, cpu_s = START, 0.0
    intervals: list[Interval] = []
    for seconds, used_s, has_sample in steps:
        now += timedelta(seconds=seconds)
        cpu_s += used_s
        found, meter = measure(meter, Sample(cpu_s=cpu_s, egress_bytes=int(cpu_s)) if has_sample else None, now)
        intervals += found
    assert all(before.end == after.begin for before, after in pairwise(intervals))
    assert all(
        one.begin < one.end and hour_of(one.begin) == hour_of(one.end - timedelta(microseconds=1)) for one in intervals
    )
    total = sum((one.usage for one in intervals), Usage())
    if intervals:
        assert math.isclose(total.wall_s, (meter.at - START).total_seconds(), rel_tol=1e-9)
        assert meter.at == intervals[-1].end
    assert math.isclose(total.cpu_s, meter.last.cpu_s, rel_tol=1e-6, abs_tol=1e-6)
    assert total.egress_bytes == meter.last.egress_bytes


def test_what_is_held_is_the_average_of_two_samples() -> None:
    meter = Meter("sb", "me", START, Sample(memory_bytes=limits.GIB))
    (one,), _ = measure(meter, Sample(memory_bytes=3 * limits.GIB), START + timedelta(seconds=10))
    assert one.usage.memory_gib_s == 20


def test_a_counter_that_begins_anew_counts_from_zero() -> None:
    meter = Meter("sb", "me", START, Sample(cpu_s=50))
    (one,), _ = measure(meter, Sample(cpu_s=2), START + timedelta(seconds=10))
    assert one.usage.cpu_s == 2


def test_prices_are_per_amount() -> None:
    prices = Prices(wall_s=1, cpu_s=2, memory_gib_s=3, disk_gib_s=4, egress_gib=5)
    assert prices.cost(Usage(1, 1, 1, 1, limits.GIB)) == 15
    assert Prices().cost(Usage(1, 1, 1, 1, 1)) == 0
