"""Ids sort by time, differ by chance, and are recognised."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from atoll.model import ids

moments = st.integers(min_value=0, max_value=2**48 - 1)
chances = st.binary(min_size=16, max_size=16)


@given(moments, chances)
def test_an_id_is_recognised_as_its_kind_only(now_ms: int, chance: bytes) -> None:
    text = ids.mint(ids.SANDBOX, now_ms, chance)
    assert ids.is_id(ids.SANDBOX, text)
    assert not ids.is_id(ids.BOX, text)


@given(moments, moments, chances, chances)
def test_ids_sort_by_time(first_ms: int, second_ms: int, first: bytes, second: bytes) -> None:
    a, b = ids.mint(ids.SANDBOX, first_ms, first), ids.mint(ids.SANDBOX, second_ms, second)
    if first_ms < second_ms:
        assert a < b


@given(st.text(max_size=60))
def test_garbage_is_no_id(text: str) -> None:
    if ids.is_id(ids.SANDBOX, text):
        assert len(text) == 38
        assert text.isascii()
