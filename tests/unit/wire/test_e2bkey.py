"""A key in the spelling of E2B is the same key."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.wire import e2bkey, token


@given(st.binary(min_size=32, max_size=32))
def test_both_spellings_are_one_key(chance: bytes) -> None:
    key = token.key_mint(chance)
    assert re.fullmatch(r"e2b_[0-9a-f]{64}", e2bkey.spelled(key))
    assert e2bkey.read(e2bkey.spelled(key)) == key
    assert e2bkey.read(key) == key


@pytest.mark.parametrize("text", ["", "e2b_", "e2b_" + "g" * 64, "foo", "e2b_00"])
def test_what_is_no_key_stays_as_it_is(text: str) -> None:
    assert e2bkey.read(text) == text
