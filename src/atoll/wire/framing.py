"""Length-prefixed frames: bytes in, frames out, and back.

A frame is a 32-bit big-endian payload length, one byte of kind, and the payload. No frame is longer than the bound, so
neither side ever holds more than one bounded payload for the other. Nothing here reads or writes; the caller does.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from atoll.model import limits

HEADER = struct.Struct(">IB")

CONTROL = 0  # JSON: requests, replies, events
STDOUT = 1  # what a process wrote to its standard output, or to its terminal
STDERR = 2
INPUT = 3  # towards the guest: standard input, or the bytes of an upload
OUTPUT = 4  # from the guest: the bytes of a download


class FrameError(ValueError):
    """The bytes are not frames, or a frame is over the bound. The connection cannot be used any more."""


class Frame(NamedTuple):
    kind: int
    payload: bytes


def header(kind: int, length_bytes: int) -> bytes:
    """The first bytes of a frame whose payload is sent separately, without a copy."""
    if length_bytes > limits.FRAME_BYTES_MAX:
        raise FrameError(f"a frame of {length_bytes} bytes is over the bound of {limits.FRAME_BYTES_MAX}")
    return HEADER.pack(length_bytes, kind)


def encode(kind: int, payload: bytes) -> bytes:
    return header(kind, len(payload)) + payload


class Decoder:
    """Cuts a stream of bytes into frames. After FrameError it must not be fed again."""

    def __init__(self, frame_bytes_max: int = limits.FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that has not come to its end; not zero at the end of a stream means that it was cut."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        self._buffer += data
        frames: list[Frame] = []
        start = 0
        available = len(self._buffer)
        with memoryview(self._buffer) as view:
            while available - start >= HEADER.size:
                length, kind = HEADER.unpack_from(view, start)
                if length > self._frame_bytes_max:
                    raise FrameError(f"a frame of {length} bytes is over the bound of {self._frame_bytes_max}")
                end = start + HEADER.size + length
                if end > available:
                    break
                frames.append(Frame(kind, bytes(view[start + HEADER.size : end])))
                start = end
        del self._buffer[:start]
        return frames
