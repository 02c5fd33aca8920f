"""Visits told together: soon at first, seldom while they go on, and never many of them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from atoll.control.tallies import Tallies
from atoll.control.visitlog import Kind
from atoll.model import limits

KIND = Kind("me", "sb1", 8000, "ok", "public", source="192.0.2.1")


def test_the_first_is_told_soon_and_the_next_once_a_minute() -> None:
    tallies: Tallies[Kind] = Tallies()
    tallies.add(KIND, 0.0, bytes_in=1, bytes_out=2, duration_s=0.5)
    assert tallies.take_due(0.5) == []
    assert tallies.next_due_s() == limits.VISIT_FIRST_REPORT_S
    ((kind, tally),) = tallies.take_due(1.0)
    assert (kind, tally.count, tally.bytes_in, tally.bytes_out, tally.longest_s) == (KIND, 1, 1, 2, 0.5)
    for moment_s in range(2, 60):
        tallies.add(KIND, float(moment_s))
        assert tallies.take_due(float(moment_s)) == []
    ((_, tally),) = tallies.take_due(61.0)
    assert tally.count == 58


def test_a_kind_of_which_nothing_comes_is_forgotten() -> None:
    tallies: Tallies[Kind] = Tallies()
    tallies.add(KIND, 0.0)
    assert len(tallies.take_due(1.0)) == 1
    assert tallies.take_due(61.0) == []
    assert tallies.next_due_s() is None
    tallies.add(KIND, 100.0)
    assert tallies.next_due_s() == 101.0


def test_a_flood_from_everywhere_is_a_few_lines() -> None:
    tallies: Tallies[Kind] = Tallies()
    for number in range(10_000):
        tallies.add(replace(KIND, port=number % 65535 + 1, source=f"192.0.2.{number}"), number / 1000)
    told = tallies.take_due(61.0)
    assert len(told) <= limits.VISIT_KINDS_MAX + 1
    assert sum(tally.count for _, tally in told) == 10_000
    other = replace(KIND, sandbox_id="sb2")
    tallies.add(other, 62.0)
    assert [kind for kind, _ in tallies.take_due(63.0)] == [other], "the neighbour's log is not crowded out"


@given(st.lists(st.tuples(st.integers(0, 200), st.floats(0, 10)), max_size=200))
def test_none_is_lost_and_none_is_told_twice(visits: list[tuple[int, float]]) -> None:
    tallies: Tallies[Kind] = Tallies()
    now_s, told = 0.0, 0
    for port, pause_s in visits:
        now_s += pause_s
        tallies.add(replace(KIND, port=port), now_s)
        told += sum(tally.count for _, tally in tallies.take_due(now_s))
    assert told + sum(tally.count for _, tally in tallies.take_due(float("inf"))) == len(visits)
