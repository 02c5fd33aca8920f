"""Frames become events, cut anywhere; events become a result, however much there is."""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.client._events import Collector, CommandResult, EventReader, Output
from atoll.model.errors import CommandFailed, ConnectionFailed, Internal, NotFound
from atoll.wire import framing
from atoll.wire.public import ProcessDropped, ProcessExited

EXIT = {"type": "exited", "exit_code": 3, "signal": None, "timed_out": False, "oom": False, "duration_s": 0.5}


def control(message: dict[str, Any]) -> bytes:
    return framing.encode(framing.CONTROL, json.dumps(message).encode())


STREAM = (
    control({"type": "started", "id": "p1", "pid": 7})
    + framing.encode(framing.STDOUT, "aü"[:2].encode()[:2])
    + framing.encode(framing.STDOUT, "ü".encode()[1:] + b"b")
    + framing.encode(framing.STDERR, b"err")
    + framing.encode(99, b"of a newer server")
    + control({"type": "dropped", "stream": "stderr", "offset": 3, "length": 10})
    + control(EXIT)
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_a_stream_cut_anywhere_gives_the_same(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    reader, collector, text = EventReader(), Collector(), ""
    for start, end in itertools.pairwise(edges):
        for event in reader.feed(STREAM[start:end]):
            collector.add(event)
            text += event.text if isinstance(event, Output) and event.stream == "stdout" else ""
    assert (reader.process_id, reader.pid, text) == ("p1", 7, "aüb")
    assert reader.offsets == {"stdout": 4, "stderr": 13}
    assert reader.exited is not None
    result = collector.result(reader.exited)
    assert (result.stdout, result.stderr, result.exit_code, result.truncated) == ("aüb", "err", 3, True)
    reader.check_complete()


@given(st.binary(max_size=200))
def test_garbage_is_an_error_of_ours(data: bytes) -> None:
    with contextlib.suppress(Internal):
        for event in EventReader().feed(data):
            assert isinstance(event, Output | ProcessDropped | ProcessExited)


def test_half_a_frame_is_forgotten_with_its_connection() -> None:
    reader = EventReader("p1", 7)
    reader.feed(framing.encode(framing.STDOUT, b"abc") + framing.encode(framing.STDOUT, b"def")[:6])
    with pytest.raises(ConnectionFailed):
        reader.check_complete()
    reader.connected()
    assert reader.offsets["stdout"] == 3
    (event,) = reader.feed(framing.encode(framing.STDOUT, b"def"))
    assert isinstance(event, Output)
    assert (event.data, event.offset) == (b"def", 3)


def test_a_failure_in_the_stream_is_raised() -> None:
    problem = {"type": "t", "title": "T", "status": 404, "code": "sandbox_not_found", "detail": "gone"}
    with pytest.raises(NotFound, match="gone"):
        EventReader().feed(control({"type": "failed", "problem": problem}))


def test_output_over_the_bound_is_dropped_and_said() -> None:
    collector = Collector(output_bytes_max=5)
    for data in (b"abc", b"def", b"ghi"):
        collector.add(Output("stdout", data, data.decode(), 0))
    result = collector.result(msgspec.convert(EXIT, ProcessExited))
    assert (result.stdout, result.truncated) == ("abcde", True)


def test_checked_tells_how_it_ended() -> None:
    fine = CommandResult(b"", b"", 0)
    assert fine.checked("true") is fine
    for result, words in [
        (CommandResult(b"", b"first\nlast\n", 2), "exit code 2: last"),
        (CommandResult(b"", b"", 137, signal=9), "signal 9"),
        (CommandResult(b"", b"", 137, signal=9, timed_out=True), "time limit"),
        (CommandResult(b"", b"", 137, signal=9, oom=True), "memory"),
    ]:
        with pytest.raises(CommandFailed, match=words) as caught:
            result.checked(["a", "b"])
        assert caught.value.result is result
