"""Messages to the kernel about links, addresses and routes are put together as it expects them."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.node.network import netlink


@given(st.integers(0, 0xFFFF), st.binary(max_size=64))
def test_an_attribute_says_its_length_and_is_padded(kind: int, value: bytes) -> None:
    raw = netlink.attribute(kind, value)
    assert struct.unpack_from("=HH", raw) == (4 + len(value), kind)
    assert raw[4 : 4 + len(value)] == value
    assert len(raw) % 4 == 0
    assert not any(raw[4 + len(value) :])


def test_a_wire_names_both_ends_and_where_the_other_one_is() -> None:
    raw = netlink.veth("gate", "02:00:0a:00:00:01", "eth0", "02:00:0a:00:00:02", 7)
    for part in (b"gate\0", b"eth0\0", b"veth", bytes.fromhex("02000a000001"), bytes.fromhex("02000a000002")):
        assert raw.count(part) == 1
    assert netlink.attribute(28, struct.pack("=I", 7)) in raw


def test_the_kernels_verdict_is_an_error_number() -> None:
    refused = struct.pack("=IHHIIi", 20, 2, 0, 1, 0, -errno.EEXIST)
    assert netlink.verdict(refused) == errno.EEXIST
    assert netlink.verdict(struct.pack("=IHHIIi", 20, 2, 0, 1, 0, 0)) == 0


def test_the_packets_of_a_counter_are_read_from_the_kernels_answer() -> None:
    """Of one that is not there, as in a namespace from before it was, there are none; nor in what is no answer."""
    data = netlink.attribute(1, (900).to_bytes(8)) + netlink.attribute(2, (7).to_bytes(8))
    body = bytes(4) + netlink.attribute(1, b"atoll\0") + netlink.attribute(4 | 0x8000, data)
    answer = struct.pack("=IHHII", 16 + len(body), 10 << 8 | 18, 0, 1, 0) + body
    assert netlink.packets(answer) == 7
    assert netlink.packets(struct.pack("=IHHIIi", 20, 2, 0, 1, 0, -errno.ENOENT)) == 0
    assert netlink.packets(b"") == 0
    assert all(netlink.packets(answer[:size]) in (0, 7) for size in range(len(answer)))


@pytest.mark.parametrize("answer", [b"", b"\0" * 12, struct.pack("=IHHIIi", 20, 3, 0, 1, 0, 0)])
def test_an_answer_that_is_none_is_an_error(answer: bytes) -> None:
    with pytest.raises(OSError, match="did not answer"):
        netlink.verdict(answer)
