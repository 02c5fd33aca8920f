"""The Connect protocol as E2B's clients speak it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.api.compat.e2b import connect
from atoll.model.errors import Conflict, GuestFailed, InvalidArgument, NotFound, OutOfSpace, TooLarge


@given(st.lists(st.binary(max_size=200), max_size=5), st.integers(1, 50))
def test_messages_are_found_however_the_body_is_cut(payloads: list[bytes], size: int) -> None:
    body = b"".join(b"\0" + len(payload).to_bytes(4, "big") + payload for payload in payloads)
    envelopes = connect.Envelopes()
    found = [item for at in range(0, len(body), size) for item in envelopes.feed(body[at : at + size])]
    assert found == payloads


def test_the_end_of_a_stream_is_marked_and_holds_the_error() -> None:
    assert connect.end() == b"\x02\0\0\0\x02{}"
    ended = connect.end(connect.Failure("not_found", "no"))
    assert ended[0] == 2
    assert json.loads(ended[5:]) == {"error": {"code": "not_found", "message": "no"}}


def test_the_last_envelope_of_a_request_is_no_message() -> None:
    assert connect.Envelopes().feed(connect.envelope({}) + connect.end()) == [b"{}"]


def test_compressed_and_endless_messages_are_refused() -> None:
    with pytest.raises(InvalidArgument):
        connect.Envelopes().feed(b"\x01\0\0\0\x01x")
    with pytest.raises(TooLarge):
        connect.Envelopes().feed(b"\0\xff\xff\xff\xff")


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (InvalidArgument("x", code="unknown_user"), "unauthenticated", 401),
        (Conflict("x", code="exists"), "already_exists", 409),
        (NotFound("x"), "not_found", 404),
        (GuestFailed("x"), "unavailable", 503),
        (OutOfSpace("x"), "internal", 500),
    ],
)
def test_errors_have_the_codes_that_clients_know(error: InvalidArgument, code: str, status: int) -> None:
    failure = connect.failure_of(error)
    assert (failure.code, failure.status) == (code, status)


def test_a_timeout_is_milliseconds() -> None:
    assert connect.timeout_s("") is None
    assert connect.timeout_s("1500") == 1.5
    assert connect.timeout_s("500.0") == 0.5
    for wrong in ("1e3", "-1", "nan", ".5", "5.", "12345678901"):
        with pytest.raises(InvalidArgument):
            connect.timeout_s(wrong)
    with pytest.raises(InvalidArgument):
        connect.timeout_s("soon")
