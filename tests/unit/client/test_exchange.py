"""Requests are built, problems become errors, and only what may be repeated is repeated."""

from __future__ import annotations

from urllib.parse import parse_qs, unquote_to_bytes

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.client import _exchange as exchange
from atoll.model import limits
from atoll.model.errors import (
    KINDS,
    ConnectionFailed,
    DeadlineExceeded,
    Internal,
    InvalidArgument,
    NotFound,
    Unavailable,
)
from atoll.wire.public import FileView, Problem, ProcessStart

REFUSED = exchange.Failure(sent=False, timed_out=False, reason="refused")
BROKEN = exchange.Failure(sent=True, timed_out=False, reason="reset")
LATE = exchange.Failure(sent=True, timed_out=True, reason="")


@given(st.binary(min_size=1).filter(lambda b: b not in (b".", b"..")))
def test_a_segment_is_one_segment_and_exact(raw: bytes) -> None:
    text = raw.decode("utf-8", "surrogateescape")
    quoted = exchange.segment(text)
    assert "/" not in quoted
    assert unquote_to_bytes(quoted) == raw


@given(st.binary())
def test_a_path_in_a_query_is_exact(raw: bytes) -> None:
    query = exchange.query(path="x" + raw.decode("utf-8", "surrogateescape"), user=None)
    found = parse_qs(query[1:], encoding="utf-8", errors="surrogateescape")
    assert found["path"][0].encode("utf-8", "surrogateescape") == b"x" + raw
    assert "user" not in found


def test_query_values() -> None:
    assert exchange.query(a=True, b=False, c=3, d=None) == "?a=true&b=false&c=3"
    assert exchange.query(a=None) == ""


@pytest.mark.parametrize("kind", KINDS.values())
def test_a_problem_becomes_the_class_that_was_raised(kind: type[Exception]) -> None:
    status = kind.http_status  # type: ignore[attr-defined]
    problem = Problem(type="t", title="T", status=status, code="c", detail="d", hint="h", request_id="r")
    error = exchange.answer_error(status, msgspec.json.encode(problem))
    assert type(error) is kind
    assert (error.message, error.code, error.hint) == ("d", "c", "h")


def test_what_is_not_ours_is_told_apart() -> None:
    assert isinstance(exchange.answer_error(404, b"<html>"), NotFound)
    assert isinstance(exchange.answer_error(599, b"\xff"), Internal)
    assert isinstance(exchange.answer_error(302, b""), InvalidArgument)
    with pytest.raises(Internal) as caught:
        exchange.decode(b'{"a": 1}', Problem)
    assert caught.value.code == "bad_answer"
    with pytest.raises(Internal):
        exchange.decode(b"\xff{", Problem)


def test_names_that_are_not_utf8_travel_in_json() -> None:
    name = b"\xff".decode("utf-8", "surrogateescape")
    assert exchange.encode(ProcessStart(argv=["echo", name])) == b'{"argv": ["echo", "\\udcff"]}'
    content = (
        b'{"path":"\\udcff","name":"n","type":"file","size":1,"mode":1,"owner":"o","group":"g",'
        b'"modified_at":"2026-01-01T00:00:00Z"}'
    )
    assert exchange.decode(content, FileView).path == name


def test_errors_without_an_answer() -> None:
    refused = exchange.failure_error(REFUSED, "http://a")
    assert isinstance(refused, ConnectionFailed)
    assert isinstance(refused, Unavailable)
    assert (refused.code, "atoll serve" in refused.hint) == ("no_server", True)
    assert exchange.failure_error(BROKEN, "http://a").code == "connection_lost"
    assert isinstance(exchange.failure_error(LATE, "http://a"), DeadlineExceeded)


def test_a_post_that_was_sent_is_never_repeated() -> None:
    for attempt in range(1, 10):
        assert exchange.retry_delay_s("POST", BROKEN, attempt, True, 0.5) is None


def test_repeats_are_few_and_only_where_allowed() -> None:
    for method in ("GET", "PUT", "DELETE"):
        delays = [exchange.retry_delay_s(method, BROKEN, attempt, True, 1.0) for attempt in range(1, 9)]
        assert delays[0] == limits.CLIENT_BACKOFF_S
        assert delays[limits.CLIENT_ATTEMPTS_MAX - 1 :] == [None] * (9 - limits.CLIENT_ATTEMPTS_MAX)
        assert exchange.retry_delay_s(method, BROKEN, 1, False, 1.0) is None
        assert exchange.retry_delay_s(method, LATE, 1, True, 1.0) is None
    assert exchange.retry_delay_s("GET", REFUSED, 1, True, 1.0) is None
    assert exchange.retry_delay_s("GET", REFUSED, 2, True, 1.0) is not None


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GiB", 2**31), ("512 MiB", 2**29), ("1.5gib", 3 * 2**29), ("10MB", 10**7), ("77", 77), (5, 5), (None, None)],
)
def test_amounts(text: str | int | None, size: int | None) -> None:
    assert exchange.parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "x", "2XB", "GiB", "nan GiB", "inf", "--1"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        exchange.parse_bytes(text)


def test_pages_ask_for_no_more_than_is_wanted() -> None:
    filters = exchange.list_filters("running", None, None, {"a": "b=c"})
    assert exchange.list_query(filters, 3, "x") == "?state=running&metadata=a%3Db%3Dc&limit=3&cursor=x"
    assert exchange.list_query([], None, None) == f"?limit={limits.PAGE_ITEMS_MAX}"
