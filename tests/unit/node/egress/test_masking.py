"""Values covered in output, also when they come in pieces, and nothing else changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.guest import agent
from atoll.node.egress import masking
from atoll.node.egress.masking import masked_stream
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


@pytest.mark.parametrize("cut", range(len(VALUE)))
async def test_a_value_in_two_pieces(cut: int) -> None:
    whole = b"a " + VALUE + b" z"
    if cut and cut < 4:
        return  # so little of a value is shown at once, so that prompts do not hang
    assert await read([whole[: 2 + cut], whole[2 + cut :]]) == b"a " + b"*" * len(VALUE) + b" z"


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
