"""Java's store, read and written without Java; that Java reads it, too, is seen where a Java client trusts it."""

from __future__ import annotations

import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.guest import javastore
from atoll.guest.javastore import NotReadable, with_certificate, without_certificate

EMPTY = javastore.MAGIC + bytes([0, 0, 0, 2, 0, 0, 0, 0])
EMPTY += javastore._digest(EMPTY)


def aliases(store: bytes) -> list[str]:
    return [alias for alias, _ in javastore._entries(store[:-20])]


def test_a_certificate_is_put_in_and_replaced() -> None:
    one = with_certificate(EMPTY, "other", b"first", 1)
    two = with_certificate(one, "atoll", b"second", 2)
    assert aliases(two) == ["other", "atoll"]
    three = with_certificate(two, "atoll", b"third", 3)
    assert aliases(three) == ["other", "atoll"]
    assert b"first" in three
    assert b"second" not in three
    assert three == with_certificate(one, "atoll", b"third", 3)


def test_a_certificate_is_taken_out_under_every_name() -> None:
    one = with_certificate(EMPTY, "other", b"first", 1)
    two = with_certificate(with_certificate(one, "atoll", b"second", 2), "debian:atoll.pem", b"second", 3)
    assert without_certificate(two, "atoll", b"second") == one
    assert aliases(without_certificate(two, "atoll", b"")) == ["other", "debian:atoll.pem"]


def test_an_entry_with_a_key_stays_as_it_is() -> None:
    chain = b"\0\0\0\1" + b"\0\5X.509" + b"\0\0\0\3abc"
    entry = b"\0\0\0\1" + b"\0\3own" + bytes(8) + b"\0\0\0\4-key" + chain
    body = javastore.MAGIC + b"\0\0\0\2" + b"\0\0\0\1" + entry
    found = with_certificate(body + javastore._digest(body), "atoll", b"x", 1)
    assert aliases(found) == ["own", "atoll"]
    assert entry in found


@pytest.mark.parametrize("cut", [1, 5, 20, 25])
def test_a_damaged_store_is_left_alone(cut: int) -> None:
    with pytest.raises(NotReadable):
        with_certificate(with_certificate(EMPTY, "a", b"b", 1)[:-cut], "atoll", b"x", 1)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_store_or_an_error(data: bytes) -> None:
    body = javastore.MAGIC + b"\0\0\0\2" + data
    for store in (data, body, body + javastore._digest(body)):
        with contextlib.suppress(NotReadable):
            assert "atoll" in aliases(with_certificate(store, "atoll", b"x", 1))


def test_a_certificate_in_a_text() -> None:
    text = f"# name\n-----BEGIN CERTIFICATE-----\n{base64.b64encode(b'der').decode()}\n-----END CERTIFICATE-----\n"
    assert javastore.der_of(text) == b"der"
    with pytest.raises(NotReadable):
        javastore.der_of("nothing")
