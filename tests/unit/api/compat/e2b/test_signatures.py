"""Signed addresses of files as E2B's clients make them."""

from __future__ import annotations

import pytest

from atoll.api.compat.e2b.signatures import Signed
from atoll.model import limits
from atoll.model.errors import InvalidArgument, Unauthenticated

# Made by e2b 2.63.0: get_signature("/a b", "read", "user", "token"), and the same with an expiration of 1000.
FOR_EVER = "v1_3y7zC7/SVa0mfOWGah2e4+8/STWMnZ8YMEZ8XJy2GHA"
UNTIL_1000 = "v1_CepVqGiZN5QghHcjirV6c58uf96V4rPOwFyLxX29qVM"


def check(given: str, expiration: str = "", now_s: float = 0.0, path: str = "/a b", operation: str = "read") -> None:
    Signed(given, expiration, path, operation, "user").check("token", now_s)


def test_a_right_signature_opens() -> None:
    check(FOR_EVER)
    check(UNTIL_1000, "1000", 999)


@pytest.mark.parametrize(
    ("given", "expiration", "now_s", "words"),
    [
        ("", "", 0.0, "missing signature query parameter"),
        ("v1_wrong", "", 0.0, "invalid signature"),
        (UNTIL_1000, "1000", 1001.0, "signature is already expired"),
        (UNTIL_1000, "2000", 0.0, "invalid signature"),
        (FOR_EVER, "soon", 0.0, "invalid signature"),
    ],
)
def test_a_wrong_one_is_refused_in_words_that_clients_know(
    given: str, expiration: str, now_s: float, words: str
) -> None:
    with pytest.raises(Unauthenticated, match=words):
        check(given, expiration, now_s)


def test_it_is_for_one_path_and_one_way() -> None:
    with pytest.raises(Unauthenticated):
        check(FOR_EVER, path="/b")
    with pytest.raises(Unauthenticated):
        check(FOR_EVER, operation="write")


def test_tokens_are_tried_one_after_the_other() -> None:
    signed = Signed(UNTIL_1000, "1000", "/a b", "read", "user")
    assert [signed.matches(token) for token in ("other", "token", "", "token")] == [False, True, False, True]


@pytest.mark.parametrize(("path", "user"), [("x", "u" * 5000), ("x" * 5000, "u")])
def test_what_no_file_is_called_is_not_hashed(path: str, user: str) -> None:
    """Nothing was shown yet, and the token of every sandbox would be tried with it."""
    assert limits.PATH_BYTES_MAX < 5000
    with pytest.raises(InvalidArgument):
        Signed(FOR_EVER, "", path, "read", user)
