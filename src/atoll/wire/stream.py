"""The events of a process or a watch as bytes, in two encodings: binary frames for our SDK, NDJSON for everyone else.

Frames are those of `wire.framing`: kind 0 holds one event as JSON, kinds 1 and 2 hold what a process wrote as it is.
The offset of output is not sent: a reader counts the bytes from where it began, and `dropped` says what it has missed.
In NDJSON each line is one event, and output is in base64.
"""

from __future__ import annotations

from collections.abc import Callable

from atoll.wire import codec, framing
from atoll.wire.public import Answer, ProcessOutput

FRAMES = "application/vnd.atoll.frames"
NDJSON = "application/x-ndjson"

_KINDS = {"stdout": framing.STDOUT, "stderr": framing.STDERR}

Encoder = Callable[[Answer], bytes]


def encode_frame(event: Answer) -> bytes:
    if isinstance(event, ProcessOutput):
        return framing.encode(_KINDS[event.stream], event.data)
    return framing.encode(framing.CONTROL, codec.encode(event))


def encode_line(event: Answer) -> bytes:
    return codec.encode(event) + b"\n"


def choose(accept: str) -> tuple[str, Encoder]:
    """The media type and encoder for an Accept header."""
    return (FRAMES, encode_frame) if FRAMES in accept else (NDJSON, encode_line)
