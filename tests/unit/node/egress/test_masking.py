"""Values covered in output, also when they come in pieces, and nothing else changed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.guest import agent
from atoll.model import limits
from atoll.node.egress import masking
from atoll.node.egress.masking import masked_stream, unskipped
from atoll.wire import framing, guest

pytestmark = pytest.mark.anyio
VALUE = b"canary-7f3e9a"


class _Stream:
    def __init__(self, messages: list[guest.Message]) -> None:
        self._messages = messages

    async def __aiter__(self) -> AsyncIterator[guest.Message]:
        for message in self._messages:
            yield message

    async def send(self, payload: bytes | memoryview) -> None: ...

    async def send_control(self, value: dict[str, Any]) -> None: ...

    async def commit(self) -> None: ...


async def read(parts: list[bytes], operation: str = "process.start") -> bytes:
    messages: list[guest.Message] = [guest.Data(framing.STDOUT, part) for part in parts]
    stream = masked_stream(_Stream([*messages, guest.End({})]), operation, (VALUE,))
    return b"".join([message.payload async for message in stream if isinstance(message, guest.Data)])


@pytest.mark.parametrize("operation", ["process.start", "contexts.run"])
@pytest.mark.parametrize("cut", range(len(VALUE)))
async def test_a_value_in_two_pieces(cut: int, operation: str) -> None:
    """So little as three bytes is shown at once, so that prompts do not hang; the rest is covered all the same."""
    whole = b"a " + VALUE + b" z"
    shown = VALUE[:cut] if cut < 4 else b""
    covered = b"a " + shown + b"*" * (len(VALUE) - len(shown)) + b" z"
    assert await read([whole[: 2 + cut], whole[2 + cut :]], operation) == covered


async def test_a_value_in_many_pieces() -> None:
    assert await read([bytes((byte,)) for byte in VALUE] + [b"!"]) == b"can" + b"*" * 10 + b"!"


def out(text: bytes, kind: int = framing.STDOUT) -> guest.Data:
    return guest.Data(kind, text)


SAID: list[guest.Message] = [
    guest.Event({"type": "started"}),
    out(b"a canary"),
    guest.Event({"type": "keepalive"}),
    out(b"canary", framing.STDERR),
    guest.Event({"type": "result", "bytes": 4}),
    out(b"cana", framing.OUTPUT),
    out(b"-7f3e9a z"),
    out(b"-other", framing.STDERR),
    guest.Event({"type": "error"}),
    out(b"cana"),
    guest.Event({"type": "cleared"}),
    out(b"ry-7f3e9a"),
    out(b"canary"),
    guest.End({}),
]
COVERED: list[guest.Message] = [
    guest.Event({"type": "started"}),
    out(b"a "),
    guest.Event({"type": "keepalive"}),
    guest.Event({"type": "result", "bytes": 4}),
    out(b"cana", framing.OUTPUT),
    out(b"************* z"),
    out(b"canary-other", framing.STDERR),
    guest.Event({"type": "error"}),
    out(b"cana"),
    guest.Event({"type": "cleared"}),
    out(b"*********"),
    out(b"canary"),
    guest.End({}),
]


async def test_a_value_that_a_context_says_in_pieces_is_covered_whatever_comes_between() -> None:
    """Signs of life, results and errors do not let its beginning through; a result is complete before anything else."""
    stream = masked_stream(_Stream(SAID), "contexts.run", (VALUE,))
    assert [message async for message in stream] == COVERED


@pytest.mark.parametrize("seen", range(10))
async def test_who_comes_back_to_an_execution_gets_what_was_held_back(seen: int) -> None:
    """The guest is asked from the beginning, and as many events as the caller has seen are left out afterwards."""
    params, skip = unskipped("contexts.attach", {"execution": "e", "skip": seen}, (VALUE,))
    assert (params.get("skip"), skip) == (0, seen)
    uncounted = (COVERED[0], COVERED[2], COVERED[-1])
    counted = [message for message in COVERED if message not in uncounted and message != out(b"cana", framing.OUTPUT)]
    stream = masked_stream(_Stream(SAID), "contexts.attach", (VALUE,), skip)
    got = [message async for message in stream]
    assert [message for message in got if message in counted] == counted[seen:]
    assert [message for message in got if message in uncounted] == list(uncounted)
    assert (out(b"cana", framing.OUTPUT) in got) == (seen < 2)
    assert unskipped("contexts.attach", {"skip": seen}, ()) == ({"skip": seen}, 0), "nothing to cover"


async def test_a_value_with_characters_that_json_escapes_is_covered_in_results() -> None:
    value = b'can"ary\\7f3'
    payload = json.dumps({"data": {"text/plain": value.decode()}}).encode()
    stream = masked_stream(_Stream([out(payload, framing.OUTPUT), guest.End({})]), "contexts.run", (value,))
    (said, _) = [message async for message in stream]
    assert isinstance(said, guest.Data)
    assert json.loads(said.payload) == {"data": {"text/plain": "*" * (len(value) + 2)}}


async def test_what_waited_does_not_make_a_frame_too_large() -> None:
    stream = masked_stream(_Stream([out(b"canary"), out(bytes(limits.FRAME_BYTES_MAX))]), "contexts.run", (VALUE,))
    sizes = [len(message.payload) async for message in stream if isinstance(message, guest.Data)]
    assert (max(sizes), sum(sizes)) == (limits.FRAME_BYTES_MAX, limits.FRAME_BYTES_MAX + 6)


async def test_results_and_errors_are_covered_in_all_their_texts() -> None:
    """And numbers, keys and the shape of it stay as they are."""
    told = {"text": f"'{VALUE.decode()}'", "lines": [1, None, {"value": f"x{VALUE.decode()}"}], "short": True}
    messages: list[guest.Message] = [guest.Event(told), guest.Failure("code", "failed"), guest.End(told)]
    stream = masked_stream(_Stream(messages), "contexts.run", (VALUE, b"short"))
    covered = {"text": f"'{'*' * 13}'", "lines": [1, None, {"value": f"x{'*' * 13}"}], "short": True}
    assert [message async for message in stream] == [
        guest.Event(covered),
        guest.Failure("code", "failed"),
        guest.End(covered),
    ]


def test_all_operations_with_output_are_known_by_their_names() -> None:
    """Each prefix is that of operations which the guest really has; one of them was misspelt once."""
    for prefix in masking._OPERATIONS:
        assert [name for name in agent.OPS if name.startswith(prefix)], prefix


async def test_files_are_left_as_they_are() -> None:
    assert await read([VALUE], "file.read") == VALUE


async def test_what_waits_comes_at_the_end() -> None:
    assert await read([b"it ends in canary-"]) == b"it ends in canary-"


@given(st.lists(st.binary(max_size=20), max_size=8))
async def test_other_output_is_not_changed(parts: list[bytes]) -> None:
    whole = b"".join(parts)
    if VALUE not in whole:
        assert await read(parts) == whole
