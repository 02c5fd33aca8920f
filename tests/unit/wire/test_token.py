"""Keys: their look and their hashes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from atoll.wire import token


@given(st.binary(min_size=32, max_size=32))
def test_a_minted_key_looks_like_one(chance: bytes) -> None:
    key = token.key_mint(chance)
    assert token.is_key(key)
    assert token.same_hash(token.key_hash(key), token.key_hash(key))


@given(st.text(max_size=60))
def test_a_text_that_is_no_key_is_told_apart(text: str) -> None:
    if token.is_key(text):
        assert text.startswith("atoll_")
        assert len(text) == 49
    assert not token.same_hash(token.key_hash(text), token.key_hash(text + "x"))
