"""Tables, amounts and durations for people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.cli.find import match
from atoll.cli.output import amount, duration, printable, table
from atoll.model.errors import Conflict


def test_columns_are_aligned() -> None:
    assert table(("A", "LONG"), [("wide cell", "x")]) == ["A          LONG", "wide cell  x"]


@given(st.text())
def test_nothing_from_elsewhere_controls_the_terminal(text: str) -> None:
    assert printable(text).isprintable()


@pytest.mark.parametrize(("size", "text"), [(0, "0B"), (2**30, "1GiB"), (3 * 2**29, "1.5GiB"), (2**41, "2TiB")])
def test_amounts(size: int, text: str) -> None:
    assert amount(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(5, "5s"), (65, "1m05s"), (7500, "2h05m"), (273600, "3d04h"), (-65, "-1m05s")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_part_must_be_long_enough_and_unique() -> None:
    ids = ["sbaaaa1111", "sbaaab2222"]
    assert match("1111", ids) == "sbaaaa1111"
    assert match("sbaaab", ids) == "sbaaab2222"
    assert match("222", ids) is None
    assert match("none-such", ids) is None
    with pytest.raises(Conflict):
        match("sbaa", ids)
