"""Heads of HTTP/2 as the application sees them: what HTTP/1.1 could say, and nothing else."""

from __future__ import annotations

import re

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.api.http2.heads import BadHead, answer_head, request_head

HONEST = {b":method": b"GET", b":scheme": b"https", b":authority": b"8000-sb1.localhost:7070", b":path": b"/a%20b?c=d"}


def head(*extra: tuple[bytes, bytes], has_body: bool = False, **changes: bytes) -> list[tuple[bytes, bytes]]:
    pseudo = HONEST | {b":" + name.encode(): value for name, value in changes.items()}
    return request_head([*pseudo.items(), *extra], has_body=has_body).headers


def test_the_application_sees_what_it_knows() -> None:
    scope = request_head([*HONEST.items(), (b"x-a", b"1")], has_body=False).scope()
    assert (scope["method"], scope["path"], scope["raw_path"], scope["query_string"]) == (
        *("GET", "/a b"),
        *(b"/a%20b", b"c=d"),
    )
    assert scope["headers"] == [(b"host", b"8000-sb1.localhost:7070"), (b"x-a", b"1")]
    assert scope["http_version"] == "2"


def test_cookies_are_one_line_again() -> None:
    found = head((b"cookie", b"a=1"), (b"x-a", b"1"), (b"cookie", b"b=2"))
    assert [value for name, value in found if name == b"cookie"] == [b"a=1; b=2"]
    assert b"cookie" not in dict(head((b"cookie", b""), (b"cookie", b"")))


def test_a_body_without_a_length_is_chunked() -> None:
    assert (b"transfer-encoding", b"chunked") in head(has_body=True)
    assert (b"transfer-encoding", b"chunked") not in head((b"content-length", b"3"), has_body=True)
    assert (b"transfer-encoding", b"chunked") not in head()


def test_host_may_stand_beside_authority_if_it_says_the_same() -> None:
    same = HONEST[b":authority"].upper()
    assert head((b"host", same))[0] == (b"host", HONEST[b":authority"])
    with pytest.raises(BadHead):
        head((b"host", b"other"))
    without = [(name, value) for name, value in HONEST.items() if name != b":authority"]
    assert request_head([*without, (b"host", b"h")], has_body=False).headers == [(b"host", b"h")]
    with pytest.raises(BadHead):
        request_head(without, has_body=False)


@pytest.mark.parametrize(
    "extra",
    [
        (b"", b""),
        (b"connection", b"close"),
        (b"upgrade", b"x"),
        (b"X-A", b"1"),
        (b"x a", b"1"),
        (b"x", b"a\nb"),
        (b"x", b" "),
    ],
)
def test_headers_that_are_none(extra: tuple[bytes, bytes]) -> None:
    with pytest.raises(BadHead):
        head(extra)


def test_a_head_has_a_bound() -> None:
    with pytest.raises(BadHead):
        head((b"x-a", b"y" * 65536))


def test_answers_lose_what_is_for_a_connection() -> None:
    found = answer_head(200, [(b"Connection", b"close"), (b"Transfer-Encoding", b"chunked"), (b"X-A", b"1")])
    assert found == [(b":status", b"200"), (b"x-a", b"1")]


@given(st.lists(st.tuples(st.sampled_from([*HONEST, b"host", b"x-a", b"cookie", b"te"]), st.binary(max_size=20))))
def test_whatever_is_said_http1_could_say_the_same(fields: list[tuple[bytes, bytes]]) -> None:
    """The head that comes out is one that a strict writer of HTTP/1.1 accepts, on one line each."""
    try:
        found = request_head([*HONEST.items(), *fields], has_body=False)
    except BadHead:
        return
    assert re.fullmatch(rb"[\x21-\x7e]+", found.target)
    assert [name for name, _ in found.headers].count(b"host") == 1
    written = h11.Request(method=found.method, target=found.target, headers=found.headers)
    assert bytes(written.target) == found.target
