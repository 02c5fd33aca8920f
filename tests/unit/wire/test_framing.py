from __future__ import annotations

import pytest

from atoll.model import limits
from atoll.wire import framing


def test_a_frame_is_its_length_its_kind_and_its_payload() -> None:
    assert framing.encode(framing.STDERR, b"abc") == b"\0\0\0\3\2abc"


def test_several_frames_in_one_piece() -> None:
    data = framing.encode(1, b"") + framing.encode(2, b"x")
    assert framing.Decoder().feed(data) == [framing.Frame(1, b""), framing.Frame(2, b"x")]


def test_the_rest_of_a_frame_is_waited_for() -> None:
    decoder = framing.Decoder()
    assert decoder.feed(b"\0\0\0\2\1a") == []
    assert decoder.pending_bytes == 6
    assert decoder.feed(b"b") == [framing.Frame(1, b"ab")]


def test_nothing_over_the_bound_is_sent() -> None:
    with pytest.raises(framing.FrameError):
        framing.encode(1, bytes(limits.FRAME_BYTES_MAX + 1))
