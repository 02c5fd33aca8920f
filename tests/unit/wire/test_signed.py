"""Signed addresses: nothing but what the server signed, for its method and its time, opens anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.model.errors import Unauthenticated
from atoll.wire import signed

SECRET = b"s" * 32
NOW_S = 1_800_000_000.0
paths = st.text(st.characters(exclude_categories=["Cs"]), min_size=1) | st.just("/tmp/\udcff")


def grant(path: str = "/tmp/a", method: str = "GET", user: str | None = None) -> signed.FileGrant:
    return signed.FileGrant("owner", "key", "sb1", method, path, user, int(NOW_S) + 60)


@given(paths, st.sampled_from(signed.METHODS), st.none() | st.text(st.characters(exclude_categories=["Cs"])))
def test_what_was_signed_is_granted(path: str, method: str, user: str | None) -> None:
    given_out = grant(path, method, user)
    assert signed.verify(SECRET, signed.sign(SECRET, given_out), method, NOW_S) == given_out


@given(st.data())
def test_no_changed_letter_passes(data: st.DataObject) -> None:
    text = signed.sign(SECRET, grant())
    position = data.draw(st.integers(0, len(text) - 1))
    letter = data.draw(st.sampled_from("ABCabc019-_.").filter(lambda letter: letter != text[position]))
    with pytest.raises(Unauthenticated):
        signed.verify(SECRET, text[:position] + letter + text[position + 1 :], "GET", NOW_S)


@given(st.text())
def test_garbage_is_refused(text: str) -> None:
    with pytest.raises(Unauthenticated):
        signed.verify(SECRET, text, "GET", NOW_S)


@pytest.mark.parametrize(
    ("secret", "method", "now_s", "code"),
    [
        (b"t" * 32, "GET", NOW_S, "invalid_signature"),
        (SECRET, "PUT", NOW_S, "invalid_signature"),
        (SECRET, "GET", NOW_S + 60, "url_expired"),
    ],
)
def test_another_secret_method_or_time(secret: bytes, method: str, now_s: float, code: str) -> None:
    with pytest.raises(Unauthenticated) as caught:
        signed.verify(secret, signed.sign(SECRET, grant()), method, now_s)
    assert caught.value.code == code
