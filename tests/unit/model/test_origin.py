"""Whose word is believed about where a request came from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.model.errors import InvalidArgument
from atoll.model.origin import origin, parse_proxies

TRUSTED = parse_proxies("127.0.0.1, 10.0.0.0/8, 2001:db8::/32")


@pytest.mark.parametrize(
    ("peer", "forwarded", "source"),
    [
        ("127.0.0.1", ["192.0.2.7"], "192.0.2.7"),
        ("127.0.0.1", [], "127.0.0.1"),
        ("198.51.100.1", ["192.0.2.7"], "198.51.100.1"),  # a stranger says what it likes
        ("127.0.0.1", ["203.0.113.9, 192.0.2.7"], "192.0.2.7"),  # what the caller has made up stands before
        ("127.0.0.1", ["203.0.113.9", "192.0.2.7"], "192.0.2.7"),
        ("127.0.0.1", ["203.0.113.9, 192.0.2.7, 10.1.2.3"], "192.0.2.7"),
        ("127.0.0.1", ["10.9.9.9"], "10.9.9.9"),
        ("127.0.0.1", ["192.0.2.7:4711"], "192.0.2.7"),
        ("2001:db8::1", ["[2a00::5]:4711"], "2a00::5"),
        ("::ffff:127.0.0.1", ["::ffff:192.0.2.7"], "192.0.2.7"),
        ("127.0.0.1", ["192.0.2.7, unknown"], "127.0.0.1"),
        ("127.0.0.1", ["192.0.2.7, 10.1.2.3, "], "127.0.0.1"),
        ("", ["192.0.2.7"], ""),
        ("127.0.0.1", ["192.0.2.7" + ", 10.0.0.1" * 10_000], "10.0.0.1"),
    ],
)
def test_only_what_a_trusted_proxy_has_written_is_believed(peer: str, forwarded: list[str], source: str) -> None:
    assert origin(peer, forwarded, TRUSTED) == source


@given(st.lists(st.text(max_size=40), max_size=5))
def test_of_a_stranger_nothing_is(forwarded: list[str]) -> None:
    assert origin("198.51.100.1", forwarded, TRUSTED) == "198.51.100.1"
    assert origin("127.0.0.1", forwarded, ()) == "127.0.0.1"
    assert "," not in origin("127.0.0.1", forwarded, TRUSTED)


def test_what_is_no_network_is_said() -> None:
    assert parse_proxies("") == ()
    for text in ("proxy.example", "10.0.0.1/8", "10.0.0.0/99"):
        with pytest.raises(InvalidArgument):
            parse_proxies(text)
