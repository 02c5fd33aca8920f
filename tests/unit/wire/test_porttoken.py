"""A token opens one port of one sandbox for a while, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from atoll.wire import porttoken

SECRET = b"s" * porttoken.SECRET_BYTES
TOKEN = porttoken.mint(SECRET, "sb1", 8000, 0, 1000)


def test_it_opens_its_port_until_its_end() -> None:
    assert porttoken.opens(SECRET, TOKEN, "sb1", 8000, 0, 999.9)
    assert not porttoken.opens(SECRET, TOKEN, "sb1", 8000, 0, 1000)
    assert porttoken.expiry_s(TOKEN) == 1000


def test_it_opens_nothing_else() -> None:
    assert not porttoken.opens(SECRET, TOKEN, "sb2", 8000, 0, 1)
    assert not porttoken.opens(SECRET, TOKEN, "sb1", 8001, 0, 1)
    assert not porttoken.opens(SECRET, TOKEN, "sb1", 8000, 1, 1)
    assert not porttoken.opens(b"t" * 32, TOKEN, "sb1", 8000, 0, 1)
    assert not porttoken.opens(SECRET, TOKEN.replace("1000.", "9000."), "sb1", 8000, 0, 1)


@given(st.text(max_size=80))
def test_what_nobody_signed_opens_nothing(text: str) -> None:
    assert not porttoken.opens(SECRET, text, "sb1", 8000, 0, 0)
    assert porttoken.expiry_s(text) >= 0
