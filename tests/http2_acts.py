"""What an HTTP/2 peer does that no library would, in plain frames; it runs in sandboxes too, so it imports little."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def settings(values: Iterable[tuple[int, int]]) -> bytes:
    return frame(4, 0, 0, b"".join(struct.pack(">HI", code, value) for code, value in values))


def literal(name: bytes, value: bytes) -> bytes:
    """A header without compression; each part has less than 127 bytes."""
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value


def kinds() -> Iterator[bytes]:
    """Settings that mean nothing, almost all there can be."""
    for start in range(0x100, 0xF000, 2560):
        yield settings((code, 1) for code in range(start, start + 2560))


def pings() -> Iterator[bytes]:
    for _ in range(100):
        yield frame(6, 0, 0, b"endless!") * 500


def priorities() -> Iterator[bytes]:
    """Of streams that nobody opened; each costs nothing to say, and wants no answer."""
    for start in range(100):
        streams = range(start * 1000 + 101, start * 1000 + 1101, 2)
        yield b"".join(frame(2, 0, stream, struct.pack(">IB", 0, 15)) for stream in streams)


def strangers() -> Iterator[bytes]:
    """Frames of a kind that nobody knows."""
    for _ in range(100):
        yield frame(99, 0, 0) * 500


def head() -> Iterator[bytes]:
    """One that goes on and on."""
    yield frame(1, 0, 3, literal(b"x-long", b"x" * 100))
    for _ in range(1000):
        yield frame(9, 0, 3, bytes(16384))


def body() -> Iterator[bytes]:
    """As much of it as may be sent before any was taken."""
    for _ in range(64):
        yield frame(0, 0, 1, bytes(16384))


ACTS = {"kinds": kinds, "pings": pings, "priorities": priorities, "strangers": strangers, "head": head, "body": body}


def act(to: socket.socket, name: str, patience_s: float = 2.0) -> None:
    """Do it, until it is done or nobody has taken any of it for so long."""
    to.settimeout(patience_s)
    try:
        for data in ACTS[name]():
            to.sendall(data)
    except OSError:
        pass  # nobody takes any more, or it was cut
