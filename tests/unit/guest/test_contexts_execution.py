"""What code says is kept in order and within its bounds, and can be read from any event on."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from atoll.guest.contexts_execution import Execution, Request
from atoll.model import limits
from atoll.wire import framing


def execution() -> Execution:
    return Execution(Request("code"), "python")


def output(made: Execution, kind: int = framing.STDOUT) -> bytes:
    return b"".join(entry.payload for entry in made.read(0) if entry.kind == kind)


@given(st.text(), st.lists(st.integers(min_value=0, max_value=50), max_size=8))
def test_text_survives_however_it_is_cut(text: str, cuts: list[int]) -> None:
    made = execution()
    data = text.encode("utf-8", "replace")
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(places):
        made.add_output(framing.STDOUT, data[start:end])
    made.end("ok", count=1, exit_code=0)
    assert output(made) == data
    for entry in made.read(0):
        entry.payload.decode("utf-8")  # each event is whole characters


@given(st.binary(max_size=200))
def test_bytes_that_are_no_text_become_text(data: bytes) -> None:
    made = execution()
    made.add_output(framing.STDERR, data)
    made.end("ok", count=1, exit_code=0)
    assert output(made, framing.STDERR).decode("utf-8") == data.decode("utf-8", "replace")


def test_a_stream_is_cut_once_and_says_so() -> None:
    made = execution()
    for _ in range(3):
        made.add_output(framing.STDOUT, b"x" * limits.EXECUTION_STREAM_BYTES_MAX)
    made.add_output(framing.STDERR, b"other")
    assert made.truncated
    assert output(made).count(b"[cut:") == 1
    assert len(output(made)) < limits.EXECUTION_STREAM_BYTES_MAX + 100
    assert output(made, framing.STDERR) == b"other"


def test_results_are_bounded_together() -> None:
    made = execution()
    for _ in range(10):
        made.add_result(b"r" * (limits.EXECUTION_BYTES_MAX // 3))
    assert len(output(made, framing.OUTPUT)) <= limits.EXECUTION_BYTES_MAX
    assert output(made, framing.STDERR).count(b"[cut:") == 1


def test_what_was_read_does_not_change() -> None:
    made = execution()
    made.add_output(framing.STDOUT, b"a")
    made.add_output(framing.STDOUT, b"b")
    assert [entry.payload for entry in made.read(0)] == [b"ab"], "gathered while nobody has read it"
    made.add_output(framing.STDOUT, b"c")
    assert [entry.payload for entry in made.read(0)] == [b"ab", b"c"]
    assert [entry.payload for entry in made.read(1)] == [b"c"]
