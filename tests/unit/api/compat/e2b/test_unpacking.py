"""Gzip bodies in pieces."""

from __future__ import annotations

import gzip
import tracemalloc

import pytest

from atoll.api.compat.e2b.unpacking import Gzip
from atoll.model import limits
from atoll.model.errors import InvalidArgument


def unpacked(body: bytes, step: int) -> bytes:
    unpacker, found = Gzip(), b""
    for start in range(0, len(body), step):
        found += b"".join(unpacker.feed(body[start : start + step]))
    unpacker.close()
    return found


@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_members_follow_one_another(step: int) -> None:
    """As `cat a.gz b.gz` makes them, and as E2B's agent takes them."""
    assert unpacked(gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two"), step) == b"one two"


@pytest.mark.parametrize(
    "body", [b"", b"no gzip", gzip.compress(b"x")[:-1], gzip.compress(b"x") + b"more", gzip.compress(b"x") + b"\x1f"]
)
def test_what_is_not_gzip_to_its_end_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidArgument):
        unpacked(body, 3)


def test_nothing_is_kept_however_it_is_packed() -> None:
    """A large piece comes in bounded ones, and what follows a member is read and not put by."""
    packed = gzip.compress(bytes(20 * limits.MIB))
    pieces = Gzip().feed(packed)
    tracemalloc.start()
    try:
        assert sum(len(piece) for piece in pieces) == 20 * limits.MIB
        assert tracemalloc.get_traced_memory()[1] < 4 * limits.FRAME_BYTES_MAX
    finally:
        tracemalloc.stop()
