"""Parsers of hostile bytes: DNS, the first bytes of TLS and HTTP. Any bytes give an answer or the one error."""

from __future__ import annotations

import contextlib
import ipaddress
import ssl

from hypothesis import given
from hypothesis import strategies as st

from atoll.model import limits
from atoll.node.egress.dns_message import (
    NO_ERROR,
    TYPE_A,
    DnsError,
    build_answer,
    build_query,
    parse_answer,
    parse_question,
)
from atoll.node.egress.http1 import host_of
from atoll.node.egress.sniff import Kind, sniff

labels = st.from_regex(r"[a-z0-9]{1,12}", fullmatch=True)
names = st.lists(labels, min_size=1, max_size=4).map(".".join)
addresses = st.lists(st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address), unique=True, max_size=10).map(tuple)


@given(st.integers(0, 65535), names)
def test_a_query_is_read_as_the_question_it_is(ident: int, name: str) -> None:
    question = parse_question(build_query(ident, name))
    assert (question.ident, question.name, question.kind) == (ident, name, TYPE_A)
    assert question.recursion_wanted


@given(st.integers(0, 65535), names, addresses, st.integers(0, 60))
def test_an_answer_is_read_as_it_was_built(
    ident: int, name: str, found: tuple[ipaddress.IPv4Address, ...], ttl_s: int
) -> None:
    query = build_query(ident, name)
    message = build_answer(parse_question(query), NO_ERROR, found, ttl_s)
    assert len(message) <= 512
    answer = parse_answer(message, query)
    assert answer.addresses == found
    assert not found or answer.ttl_s == ttl_s


@given(st.binary(max_size=600))
def test_any_bytes_are_a_question_or_an_error(data: bytes) -> None:
    try:
        question = parse_question(data)
    except DnsError:
        return
    assert len(question.name) <= limits.HOST_NAME_CHARS_MAX


@given(names, st.binary(max_size=600), st.integers(0, 600))
def test_any_bytes_are_an_answer_or_an_error(name: str, noise: bytes, cut: int) -> None:
    """Also bytes that begin as a good answer: pointers that lead nowhere, lengths that lie."""
    query = build_query(7, name)
    good = build_answer(parse_question(query), NO_ERROR, (ipaddress.IPv4Address("192.0.2.1"),), 5)
    for message in (noise, good[:cut] + noise):
        try:
            answer = parse_answer(message, query)
        except DnsError:
            continue
        assert len(answer.addresses) <= limits.DNS_ANSWERS_MAX


@given(names, names)
def test_an_answer_to_another_question_is_none(mine: str, other: str) -> None:
    if mine == other:
        return
    theirs = build_answer(parse_question(build_query(7, other)), NO_ERROR, (ipaddress.IPv4Address("192.0.2.1"),), 5)
    try:
        parse_answer(theirs, build_query(7, mine))
    except DnsError:
        return
    raise AssertionError("taken")


def hello(name: str | None, protocols: tuple[str, ...] = ()) -> bytes:
    """A ClientHello as OpenSSL makes it."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(list(protocols))
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def test_the_name_in_a_real_hello() -> None:
    found = sniff(hello("Www.Example.Test", ("h2", "http/1.1")))
    assert (found.kind, found.name, found.protocols) == (Kind.TLS, "www.example.test", ("h2", "http/1.1"))
    assert sniff(hello(None)).name == ""


_HELLO = hello("www.example.test")


@given(st.integers(0, len(_HELLO) - 1))
def test_a_hello_that_is_cut_off_waits_for_more(cut: int) -> None:
    assert sniff(_HELLO[:cut]).kind is Kind.MORE


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_a_hello_in_many_records_is_the_same_hello(sizes: list[int]) -> None:
    body, records = _HELLO[5:], b""
    for size in sizes:
        part, body = body[:size], body[size:]
        if part:
            records += b"\x16\x03\x01" + len(part).to_bytes(2) + part
    if body:
        records += b"\x16\x03\x01" + len(body).to_bytes(2) + body
    assert sniff(records).name == "www.example.test"


@given(st.integers(0, len(_HELLO) - 1), st.integers(0, 255))
def test_a_changed_hello_names_the_same_host_or_none(position: int, value: int) -> None:
    changed = _HELLO[:position] + bytes([value]) + _HELLO[position + 1 :]
    found = sniff(changed)
    assert found.kind in (Kind.TLS, Kind.MORE, Kind.OTHER)
    assert len(found.name) <= limits.HOST_NAME_CHARS_MAX


_PIECES = (
    *(b"GET", b"PURGE", b"PRI * HTTP/2.0", b"P", b"SSH-2.0-x", b" ", b"\t", b"\r\n", b"\n", b"\r", b"/x", b"\0", b":"),
    *(b"HTTP/1.1", b"http/1", b"\x16\x03\x01", b"\x16\x03\x01\0\0", b"\x15\x03\x01\0\x02\1\0"),
    *(b"\x80\x2e\1\3\1", b"\x01", _HELLO, _HELLO[5:], _HELLO[:40], b"\0\0\0\x08", b"A" * 9000),
)


@given(st.lists(st.sampled_from(_PIECES) | st.binary(max_size=4), max_size=9).map(b"".join), st.data())
def test_what_is_decided_about_a_beginning_holds_for_the_whole(whole: bytes, data: st.DataObject) -> None:
    """Else a pause in the right place would make one thing of another."""
    cut = data.draw(st.integers(0, len(whole)))
    early = sniff(whole[:cut])
    assert early.kind is Kind.MORE or early == sniff(whole)


@given(st.binary(max_size=300))
def test_any_first_bytes_are_something(data: bytes) -> None:
    assert isinstance(sniff(data).kind, Kind)
    assert sniff(b"\x16\x03" + data).kind in (Kind.TLS, Kind.MORE, Kind.OTHER)
    assert isinstance(host_of(b"GET / HTTP/1.1\r\nHost: " + data), str)
