"""Frames survive any cutting of the stream, and garbage is refused within bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.model import limits
from atoll.wire import framing

frames = st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=200)), max_size=20)


@given(frames, st.lists(st.integers(1, 50), min_size=1))
def test_frames_come_back_however_the_stream_is_cut(wanted: list[tuple[int, bytes]], sizes: list[int]) -> None:
    stream = b"".join(framing.encode(kind, payload) for kind, payload in wanted)
    decoder, found, position, turn = framing.Decoder(), [], 0, 0
    while position < len(stream):
        size = sizes[turn % len(sizes)]
        found += decoder.feed(stream[position : position + size])
        position += size
        turn += 1
    assert [(frame.kind, frame.payload) for frame in found] == wanted
    assert decoder.pending_bytes == 0


@given(st.binary(max_size=4096), st.integers(0, 300))
def test_garbage_never_makes_the_decoder_hold_more_than_one_frame(data: bytes, bound: int) -> None:
    decoder = framing.Decoder(bound)
    try:
        for index in range(len(data)):
            decoder.feed(data[index : index + 1])
            assert decoder.pending_bytes <= bound + framing.HEADER.size
    except framing.FrameError:
        pass


@given(st.integers(limits.FRAME_BYTES_MAX + 1, 2**32 - 1), st.integers(0, 255))
def test_a_frame_over_the_bound_is_refused_by_its_header_alone(length: int, kind: int) -> None:
    with pytest.raises(framing.FrameError):
        framing.Decoder().feed(framing.HEADER.pack(length, kind))
