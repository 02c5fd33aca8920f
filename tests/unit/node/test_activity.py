"""What counts as use of a sandbox."""

from __future__ import annotations

import math
import time

import pytest

from atoll.node.activity import Activity

LONG_S = 1000.0


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> Activity:
    """One that nothing has happened to for a long time."""
    activity = Activity(lambda: False)
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s + LONG_S)
    return activity


def test_a_call_and_a_stream_are_use_until_they_end(old: Activity) -> None:
    assert old.idle_s() >= LONG_S
    with old.going_on():
        assert old.idle_s() == 0
    assert old.idle_s() == 0


def test_output_counts_from_when_it_was_printed(old: Activity) -> None:
    old.printed(30.0)
    assert old.idle_s() == pytest.approx(30.0)
    old.printed(LONG_S * 2)
    assert old.idle_s() == pytest.approx(30.0), "what was before does not make it older"


@pytest.mark.parametrize("said", [None, "1", True, -1, math.nan, [], -math.inf])
def test_what_is_no_age_is_not_believed(old: Activity, said: object) -> None:
    old.printed(said)
    assert old.idle_s() >= LONG_S


def test_bytes_to_the_outside_count_from_when_they_moved() -> None:
    moved_at_s = 0.0
    activity = Activity(lambda: False, lambda: moved_at_s)
    time.sleep(0.05)
    assert activity.idle_s() >= 0.05
    moved_at_s = time.monotonic()
    assert activity.idle_s() < 0.05
