"""Values covered in output, also when they come in pieces, and nothing else changed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.guest import agent
from atoll.model import limits
from atoll.model.secret import held_back
from atoll.node.egress import masking
from atoll.node.egress.masking import Values, covered_values, masked_stream, unskipped
from atoll.wire import framing, guest

pytestmark = pytest.mark.anyio
VALUE = b"canary-7f3e9a"


def always(*values: bytes) -> Callable[[], Values]:
    return lambda: values


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
    stream = masked_stream(_Stream([*messages, guest.End({})]), operation, always(VALUE))
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
    stream = masked_stream(_Stream(SAID), "contexts.run", always(VALUE))
    assert [message async for message in stream] == COVERED


@pytest.mark.parametrize("seen", range(10))
async def test_who_comes_back_to_an_execution_gets_what_was_held_back(seen: int) -> None:
    """The guest is asked from the beginning, and as many events as the caller has seen are left out afterwards."""
    params, skip = unskipped("contexts.attach", {"execution": "e", "skip": seen}, (VALUE,))
    assert (params.get("skip"), skip) == (0, seen)
    uncounted = (COVERED[0], COVERED[2], COVERED[-1])
    counted = [message for message in COVERED if message not in uncounted and message != out(b"cana", framing.OUTPUT)]
    stream = masked_stream(_Stream(SAID), "contexts.attach", always(VALUE), skip)
    got = [message async for message in stream]
    assert [message for message in got if message in counted] == counted[seen:]
    assert [message for message in got if message in uncounted] == list(uncounted)
    assert (out(b"cana", framing.OUTPUT) in got) == (seen < 2)
    assert unskipped("contexts.attach", {"skip": seen}, ()) == ({"skip": seen}, 0), "nothing to cover"


async def test_a_value_with_characters_that_json_escapes_is_covered_in_results() -> None:
    value = b'can"ary\\7f3'
    payload = json.dumps({"data": {"text/plain": value.decode()}}).encode()
    stream = masked_stream(_Stream([out(payload, framing.OUTPUT), guest.End({})]), "contexts.run", always(value))
    (said, _) = [message async for message in stream]
    assert isinstance(said, guest.Data)
    assert json.loads(said.payload) == {"data": {"text/plain": "*" * (len(value) + 2)}}


async def test_what_waited_does_not_make_a_frame_too_large() -> None:
    stream = masked_stream(_Stream([out(b"canary"), out(bytes(limits.FRAME_BYTES_MAX))]), "contexts.run", always(VALUE))
    sizes = [len(message.payload) async for message in stream if isinstance(message, guest.Data)]
    assert (max(sizes), sum(sizes)) == (limits.FRAME_BYTES_MAX, limits.FRAME_BYTES_MAX + 6)


async def test_results_and_errors_are_covered_in_all_their_texts() -> None:
    """And numbers, keys and the shape of it stay as they are."""
    told = {"text": f"'{VALUE.decode()}'", "lines": [1, None, {"value": f"x{VALUE.decode()}"}], "short": True}
    messages: list[guest.Message] = [guest.Event(told), guest.Failure("code", "failed"), guest.End(told)]
    stream = masked_stream(_Stream(messages), "contexts.run", always(VALUE, b"short"))
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


class _Changing(_Stream):
    """What a sandbox says, and the values that it has from each of these messages on."""

    def __init__(self, said: list[tuple[bytes, Values]], kind: int = framing.STDOUT) -> None:
        super().__init__([out(text, kind) for text, _ in said])
        self._after = [values for _, values in said]
        self.values: Values = ()

    async def __aiter__(self) -> AsyncIterator[guest.Message]:
        async for message in super().__aiter__():
            self.values = self._after.pop(0)
            yield message

    async def read(self, operation: str) -> bytes:
        stream = masked_stream(self, operation, lambda: self.values)
        return b"".join([message.payload async for message in stream if isinstance(message, guest.Data)])


@pytest.mark.parametrize("kind", [framing.STDOUT, framing.OUTPUT])
@pytest.mark.parametrize("operation", ["process.start", "contexts.run", "shell.run"])
async def test_a_stream_that_was_open_before_covers_what_was_put_in_later(operation: str, kind: int) -> None:
    """A first secret, a rotation in the middle of a value's pieces, and an end after which nothing is known."""
    both = (b"second-9c1", VALUE)
    stream = _Changing(
        [
            (VALUE, ()),
            (b" " + VALUE, (VALUE,)),
            (b" seco", (VALUE,)),
            (b"nd-9", (VALUE,)),
            (b" " + both[0] + b" canar", both),
            (b"y-7f3e9a " + both[0], ()),
        ],
        kind,
    )
    assert await stream.read(operation) == VALUE + b" " + b"*" * 13 + b" second-9 " + b"*" * 10 + b" " + b"*" * 13 + (
        b" " + b"*" * 10
    )


async def test_a_value_that_becomes_known_between_its_pieces_is_covered_from_there() -> None:
    stream = _Changing([(b"a canary", (VALUE,)), (b"-7f3", (VALUE,)), (b"e9a second", (b"second-9c1", VALUE))])
    assert await stream.read("process.start") == b"a " + b"*" * 13 + b" second"


def test_values_of_before_are_covered_on_and_the_oldest_of_many_are_given_up() -> None:
    """Of the shortest, which no output is searched for, none is remembered. Nothing changed is the same object."""
    first = covered_values([VALUE, b"short"], ())
    assert first == (VALUE,)
    assert covered_values([VALUE], first) is first
    assert covered_values([], first) is first, "taken away"
    assert covered_values([b"second-9c1"], first) == (b"second-9c1", VALUE)
    values = covered_values([VALUE], ())
    for number in range(limits.SECRET_PAST_VALUES_MAX + 1):
        values = covered_values([b"value-%d" % number], values)
    assert len(values) == limits.SECRET_PAST_VALUES_MAX + 1
    assert (values[0], values[-1]) == (b"value-64", b"value-0")
    assert VALUE not in values


@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=9), max_size=3))
def test_what_is_held_back_is_the_longest_beginning_of_a_value(text: str, values: list[str]) -> None:
    sizes = [size for value in values for size in range(4, len(value)) if text.endswith(value[:size])]
    assert held_back(text.encode(), [value.encode() for value in values]) == max(sizes, default=0)
