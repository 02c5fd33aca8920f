"""Both encodings of a process's events."""

from __future__ import annotations

import json

import pytest

from atoll.wire import framing, stream
from atoll.wire.public import ProcessExited, ProcessOutput, ProcessStarted

EXITED = ProcessExited(exit_code=0, signal=None, timed_out=False, oom=False, duration_s=0.5)


def test_output_is_a_frame_of_its_own_kind() -> None:
    data = stream.encode_frame(ProcessOutput(stream="stderr", offset=5, data=b"\x00\xff"))
    assert framing.Decoder().feed(data) == [framing.Frame(framing.STDERR, b"\x00\xff")]


def test_other_events_are_control_frames() -> None:
    (frame,) = framing.Decoder().feed(stream.encode_frame(EXITED))
    assert frame.kind == framing.CONTROL
    assert json.loads(frame.payload)["type"] == "exited"


def test_a_line_is_one_event() -> None:
    line = stream.encode_line(ProcessStarted(id="a\nb", pid=1))
    assert line.count(b"\n") == 1
    assert json.loads(line) == {"type": "started", "id": "a\nb", "pid": 1}


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", stream.NDJSON),
        ("*/*", stream.NDJSON),
        (stream.FRAMES, stream.FRAMES),
        (f"a/b, {stream.FRAMES};q=1", stream.FRAMES),
    ],
)
def test_the_caller_chooses(accept: str, chosen: str) -> None:
    assert stream.choose(accept)[0] == chosen
