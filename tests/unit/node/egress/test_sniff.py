"""What a connection is, where somebody would like it to be taken for something else."""

from __future__ import annotations

import contextlib
import ssl
import time

import pytest

from atoll.model import limits
from atoll.node.egress.sniff import Kind, sniff


def hello(name: str | None = "good.test") -> bytes:
    """A ClientHello as OpenSSL makes it."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def records(body: bytes, size: int) -> bytes:
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"\x16\x03\x01" + len(part).to_bytes(2) + part for part in parts)


HELLO = hello()
GROWN = b"\x01" + (20_000).to_bytes(3) + HELLO[9:] + bytes(20_000)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"GET / HTTP/1.1\r\n", Kind.HTTP),
        (b"GET /of-1991\r\n", Kind.HTTP),
        (b"BREW /pot HTTP/1.1\r\n", Kind.HTTP),
        (b"\r\nGET / HTTP/1.1\r\n", Kind.HTTP),
        (b"\n \t\r\nGET / HTTP/1.1\r\n", Kind.HTTP),
        (b"GET\t/\tHTTP/1.1\r\n", Kind.HTTP),
        (b"PURGE\t/\x0bHTTP/1.1\r\n", Kind.HTTP),
        (b"PURGE /a b http/1.1\r\n", Kind.HTTP),
        (b"M" * 200 + b" / HTTP/1.1\r\n", Kind.HTTP),
        (b"PURGE /" + b"x" * limits.HELLO_BYTES_MAX, Kind.HTTP),
        (PREFACE, Kind.HTTP2),
        (b"PRI * HTTP/1.1\r\n", Kind.HTTP),
        (b"\x16\x03\x01\0\0" + HELLO, Kind.TLS),
        (b"\x15\x03\x01\0\2\1\0" + HELLO, Kind.TLS),
        (b"\x14\x03\x03\0\1\1" + HELLO, Kind.TLS),
        (HELLO[:5] + b"\2" + HELLO[6:], Kind.TLS),
        (records(GROWN, 4000), Kind.TLS),
        (records(HELLO[5:], 1), Kind.TLS),
        (b"\x80\x2e\1\3\1\0\x15\0\0\0\x10", Kind.TLS),
        (b"SSH-2.0-OpenSSH\r\n", Kind.OTHER),
        (b"\0\0\0\x08\x04\xd2\x16\x2f", Kind.OTHER),
        (b"0032git-upload-pack /project.git\0host=a.test\0", Kind.OTHER),
        (b"*1\r\n$4\r\nPING\r\n", Kind.OTHER),
        (b"CONNECT {}\r\n", Kind.OTHER),  # of NATS
        (b"CONNECT\naccept-version:1.2\n\n\0", Kind.OTHER),  # of STOMP
        (b"CONNECT a.test:22 HTTP/1.1\r\n", Kind.HTTP),
        (b"USER me\r\n", Kind.OTHER),
        (b"\n\0\0\1", Kind.OTHER),  # of MySQL
        (b"AMQP\0\0\x09\1", Kind.OTHER),
        (b"\xff\xfb\1\xff", Kind.OTHER),  # of Telnet
    ],
)
def test_what_first_bytes_are(data: bytes, kind: Kind) -> None:
    assert sniff(data).kind is kind


@pytest.mark.parametrize(
    ("data", "strange"),
    [
        *(
            (data, False)
            for data in (b"", b"G", b"GE", b"GET ", b"\r\nPO", b"P", b"PRI ", b"\x16", HELLO[:2], HELLO[:50])
        ),
        *((data, True) for data in (b"PURGE", b"PURGE /x HT", b"\r\n", b"JDWP-Handshake", b"SSH-2.0-", b"\xff\xfb\1")),
    ],
)
def test_what_is_too_early_to_say(data: bytes, strange: bool) -> None:
    assert (sniff(data).kind, sniff(data).strange) == (Kind.MORE, strange)


def test_a_name_is_believed_of_a_clear_hello_only() -> None:
    assert (sniff(HELLO).name, sniff(HELLO).clear) == ("good.test", True)
    assert (sniff(hello(None)).name, sniff(hello(None)).clear) == ("", True)
    assert sniff(hello("192.0.2.1")).clear, "an address for a name is no trick"
    for trick in (b"\x16\x03\x01\0\0" + HELLO, b"\x15\x03\x01\0\2\1\0" + HELLO, records(HELLO[5:], 1)):
        assert (sniff(trick).name, sniff(trick).clear) == ("", False)
    assert sniff(records(HELLO[5:], 1 + len(HELLO) // limits.HELLO_RECORDS_MAX)).name == "good.test"


def test_a_hello_in_crumbs_is_cheap() -> None:
    """Every look at it costs; the control is the time that a whole one takes."""
    crumbs = records(HELLO[5:] * 5, 1)[: limits.HELLO_BYTES_MAX - 1]
    began_s = time.perf_counter()
    for _ in range(1000):
        sniff(crumbs)
    assert time.perf_counter() - began_s < 0.3, "0.7 s if all records are read"
