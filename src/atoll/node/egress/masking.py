"""Secrets covered in the output of programs: a value that came back in an answer does not go on to logs and results.

As many asterisks as the value has bytes, so that offsets stay right. Output that ends in the beginning of a value waits
for what follows. It is a courtesy to logs, not a boundary: a program that wants to can encode what it saw.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from atoll.model import limits
from atoll.model.secret import held_back, masked
from atoll.wire import guest
from atoll.wire.node import GuestStream

_OPERATIONS = ("process.", "contexts.", "shell.")  # those whose bytes are output; files are left as they are


class _Masked:
    """A stream whose output is covered on its way."""

    def __init__(self, stream: GuestStream, values: tuple[bytes, ...]) -> None:
        self._stream = stream
        self._values = values
        self.send = stream.send
        self.send_control = stream.send_control
        self.commit = stream.commit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aiter__(self) -> AsyncIterator[guest.Message]:
        waiting: dict[int, bytes] = {}
        async for message in self._stream:
            if not isinstance(message, guest.Data):
                for kind, rest in waiting.items():
                    yield guest.Data(kind, rest)
                waiting.clear()
                yield self._covered(message)
                continue
            text = masked(waiting.pop(message.kind, b"") + message.payload, self._values)
            kept = held_back(text, self._values)
            if kept:
                waiting[message.kind] = text[-kept:]
                text = text[:-kept]
            if text:
                yield guest.Data(message.kind, text)
        for kind, rest in waiting.items():
            yield guest.Data(kind, rest)

    def _covered(self, message: guest.Message) -> guest.Message:
        """What is told in words, such as a result or an error of code: the texts in it, wherever they are."""
        if isinstance(message, guest.Event | guest.End | guest.Ok):
            return type(message)(_covered(message.value, self._values))
        return message


def _covered(value: Any, values: tuple[bytes, ...]) -> Any:
    if isinstance(value, str):
        # Character by character, so that what is no text of bytes stays what it is: values are ASCII.
        for one in values:
            if len(one) >= limits.SECRET_MASK_BYTES_MIN:
                value = value.replace(one.decode("ascii"), "*" * len(one))
        return value
    if isinstance(value, dict):
        return {key: _covered(item, values) for key, item in value.items()}
    if isinstance(value, list):
        return [_covered(item, values) for item in value]
    return value


def masked_stream(stream: GuestStream, operation: str, values: tuple[bytes, ...]) -> GuestStream:
    """The same operation with its output covered; the same object if there is nothing to cover."""
    if not values or not operation.startswith(_OPERATIONS):
        return stream
    return _Masked(stream, values)
