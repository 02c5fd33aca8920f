"""JSON in and out: typed, strict, and exact for names that are not UTF-8."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.model.errors import GuestFailed, InvalidArgument
from atoll.wire import codec


class Body(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    number: int = 0


@given(st.binary(max_size=40), st.integers(-(2**53), 2**53))
def test_names_of_any_bytes_survive_the_round_trip(name: bytes, number: int) -> None:
    body = Body(text=name.decode("utf-8", "surrogateescape"), number=number)
    again = codec.decode(codec.encode(body), Body)
    assert again.text.encode("utf-8", "surrogateescape") == name
    assert again.number == number


@given(st.binary(max_size=60))
def test_garbage_is_an_invalid_body(garbage: bytes) -> None:
    with suppress(InvalidArgument):
        assert isinstance(codec.decode(garbage, Body), Body)


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"text":5}', b'{"text":"a","more":1}', b'{"text":"\\ud800"', b"[" * 10_000 + b'"\\ud800"']
)
def test_what_does_not_fit_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidArgument):
        codec.decode(body, Body)


def test_query_texts_become_numbers() -> None:
    assert codec.query({"text": "1", "number": "5"}, Body) == Body(text="1", number=5)
    with pytest.raises(InvalidArgument):
        codec.query({"text": "1", "number": "x"}, Body)


def test_what_a_guest_says_is_not_coerced() -> None:
    with pytest.raises(GuestFailed):
        codec.from_guest({"text": "1", "number": "5"}, Body)
