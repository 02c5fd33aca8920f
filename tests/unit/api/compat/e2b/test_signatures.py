"""Signed addresses of files as E2B's clients make them."""

from __future__ import annotations

import pytest

from atoll.api.compat.e2b import signatures
from atoll.model.errors import Unauthenticated

# Made by e2b 2.63.0: get_signature("/a b", "read", "user", "token"), and the same with an expiration of 1000.
FOR_EVER = "v1_3y7zC7/SVa0mfOWGah2e4+8/STWMnZ8YMEZ8XJy2GHA"
UNTIL_1000 = "v1_CepVqGiZN5QghHcjirV6c58uf96V4rPOwFyLxX29qVM"


def check(given: str, expiration: str = "", now_s: float = 0.0, path: str = "/a b", operation: str = "read") -> None:
    signatures.check(given, expiration, path, operation, "user", "token", now_s)


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
