"""What is taken off and put right on the way through a port."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.api.ingress import heads
from atoll.api.ingress.routes import Target

KEY = "atoll_" + "k" * 43
TARGET = Target("sb" + "0" * 36, 8000)


def passed(*given: tuple[bytes, bytes], upgrade: bytes = b"", mask: str = "localhost:8000") -> dict[bytes, bytes]:
    return dict(heads.request_head(given, TARGET, mask=mask, scheme="http", client="10.1.1.1", upgrade=upgrade))


def test_keys_of_ours_stop_here_and_those_of_others_pass() -> None:
    got = passed((b"authorization", f"Bearer {KEY}".encode()), (b"x-api-key", b"theirs"))
    assert b"authorization" not in got
    assert got[b"x-api-key"] == b"theirs"
    assert passed((b"authorization", b"Bearer other"))[b"authorization"] == b"Bearer other"


def test_what_is_for_the_next_hop_only_stops_here() -> None:
    got = passed((b"connection", b"keep-alive, X-Hop"), (b"x-hop", b"1"), (b"te", b"trailers"), (b"x-end", b"1"))
    assert got[b"connection"] == b"close"
    assert not {b"x-hop", b"te"} & set(got)
    assert got[b"x-end"] == b"1"


def test_a_caller_cannot_name_content_length_as_a_hop() -> None:
    assert passed((b"connection", b"content-length, host"), (b"content-length", b"3"))[b"content-length"] == b"3"


@pytest.mark.parametrize(
    "name",
    [
        *(b"x_forwarded_for", b"X_Forwarded-For", b"x_forwarded_proto", b"x-forwarded_host", b"x_real_ip"),
        *(b"x_atoll_sandbox", b"x-atoll_token", b"content_length", b"transfer_encoding"),
    ],
)
def test_a_name_that_a_server_may_read_as_one_of_ours_stops_here(name: bytes) -> None:
    got = passed((name, b"10.9.9.9"), (b"user_agent", b"x"), (b"content-length", b"3"))
    assert b"10.9.9.9" not in got.values()
    assert got[b"x-forwarded-for"] == b"10.1.1.1"
    assert got[b"user_agent"] == b"x"
    assert got[b"content-length"] == b"3"


def test_an_upgrade_is_asked_for_again() -> None:
    got = passed((b"connection", b"Upgrade"), (b"upgrade", b"websocket"), upgrade=b"websocket")
    assert (got[b"connection"], got[b"upgrade"]) == (b"upgrade", b"websocket")


def test_a_foreign_origin_stays_foreign() -> None:
    host = (b"host", b"8000-x.localhost:7070")
    assert passed(host, (b"origin", b"https://evil.example"))[b"origin"] == b"https://evil.example"
    assert passed(host, (b"origin", b"http://8000-x.localhost:7070"))[b"origin"] == b"http://localhost:8000"


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        (b"http://localhost:8000/a?b#c", b"/a?b#c"),
        (b"http://localhost:8000", b"/"),
        (b"http://localhost:8000//evil.example/", b"/evil.example/"),
        (b"http://localhost:80000/a", b"http://localhost:80000/a"),
        (b"https://elsewhere.example/", b"https://elsewhere.example/"),
        (b"/relative", b"/relative"),
    ],
)
def test_a_location_leads_where_the_caller_is(inside: bytes, outside: bytes) -> None:
    assert dict(heads.answer_head([(b"location", inside)], mask="localhost:8000"))[b"location"] == outside


def test_a_length_that_does_not_count_stays_behind() -> None:
    length = (b"content-length", b"5")
    assert heads.answer_head([length], mask="") == [length]
    assert heads.answer_head([length], mask="", has_body=False) == []
    assert heads.answer_head([length, (b"transfer-encoding", b"chunked")], mask="") == []


def test_cookies_stay_with_their_host() -> None:
    answer = heads.answer_head(
        [(b"set-cookie", b"a=1; domain = .localhost; Secure"), (b"set-cookie", b" atoll_port=x; Path=/")], mask=""
    )
    assert answer == [(b"set-cookie", b"a=1; Secure")]


def test_credentials_are_found_where_they_stand() -> None:
    assert heads.credentials([(b"x-atoll-token", b"t")], b"atoll_token=q", TARGET).token == "t"
    asked = heads.credentials([(b"cookie", b"a=1; atoll_port=c")], b"x=1&atoll_token=q", TARGET)
    assert (asked.token, asked.in_query) == ("q", True)
    assert heads.credentials([(b"cookie", b"a=1; atoll_port=c")], b"", TARGET).token == "c"
    assert heads.credentials([(b"authorization", f"Bearer {KEY}".encode())], b"", TARGET).key == KEY
    assert heads.credentials([(b"x-api-key", KEY.encode())], b"", TARGET).key == KEY


def test_a_query_keeps_its_bytes() -> None:
    assert heads.query_without_token(b"a=%20&atoll_token=1.x&b=+&c") == b"a=%20&b=+&c"
    assert heads.query_without_token(b"atoll_token=1.x") == b""


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=40)), max_size=8), st.binary(max_size=60))
def test_whatever_is_sent_nothing_of_ours_passes(sent: list[tuple[bytes, bytes]], query: bytes) -> None:
    heads.credentials(sent, query, TARGET)
    lowered = [(name.lower(), value) for name, value in sent] + [(b"x-api-key", KEY.encode())]
    assert not any(
        KEY.encode() in value for _, value in heads.request_head(lowered, TARGET, mask="", scheme="http", client="")
    )
    assert b"atoll_token=" not in b"&" + heads.query_without_token(query) or not any(
        part.startswith(b"atoll_token=") for part in heads.query_without_token(query).split(b"&")
    )
