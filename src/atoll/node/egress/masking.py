"""Secrets covered in the output of programs: a value that came back in an answer does not go on to logs and results.

As many asterisks as the value has bytes, so that offsets stay right. Output that ends in the beginning of a value waits
for what follows; what was shown before is remembered, so that the rest of a value is covered wherever it was cut. Code
in a context has nobody at a prompt: there the beginning waits for the next output, whatever is told in between. Values
may change while a stream lasts: each message is covered by those of its moment, and by those of before, which programs
may still hold. It is a courtesy to logs, not a boundary: a program that wants to can encode what it saw.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

from atoll.model import limits
from atoll.model.secret import held_back, masked
from atoll.wire import framing, guest
from atoll.wire.node import GuestStream

_OPERATIONS = ("process.", "contexts.", "shell.")  # those whose bytes are output; files are left as they are
_ATTACH = "contexts.attach"

Values = tuple[bytes, ...]


class _Cover:
    """One stream of bytes, covered as it goes by. It keeps less than the longest value, twice."""

    def __init__(self, values: Values) -> None:
        self._shown = b""
        self._waiting = b""
        self.renew(values)

    def renew(self, values: Values) -> None:
        """Other values from the next bytes on; what waited goes on waiting for them."""
        self._values = values
        self._kept_bytes = max((len(value) for value in values), default=1) - 1

    def feed(self, data: bytes) -> bytes:
        """What may be shown now."""
        text = masked(self._shown + self._waiting + data, self._values)
        fresh_bytes = len(self._waiting) + len(data)
        held_bytes = min(held_back(text, self._values), fresh_bytes)
        self._waiting = text[len(text) - held_bytes :]
        return self._show(text[: len(text) - held_bytes], fresh_bytes - held_bytes)

    def rest(self) -> bytes:
        """What waited, because nothing follows, or something that must not overtake it."""
        waiting, self._waiting = self._waiting, b""
        return self._show(self._shown + waiting, len(waiting))

    def _show(self, text: bytes, fresh_bytes: int) -> bytes:
        self._shown = text[-self._kept_bytes :] if self._kept_bytes else b""
        return text[len(text) - fresh_bytes :]


class _Masked:
    """A stream whose output is covered on its way."""

    def __init__(self, stream: GuestStream, values: Callable[[], Values]) -> None:
        self._stream = stream
        self._known = values
        self._values = values()
        self._covers: dict[int, _Cover] = {}
        self.send = stream.send
        self.send_control = stream.send_control
        self.commit = stream.commit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aiter__(self) -> AsyncIterator[guest.Message]:
        async for message in self._stream:
            self._renew()
            if not self._values and not self._covers:
                yield message
                continue
            for part in self._rests(message):
                yield part
            if not isinstance(message, guest.Data):
                yield self._covered(message)
                continue
            for part in _parts(message.kind, self._cover(message.kind).feed(message.payload)):
                yield part
        for part in self._rests(None):
            yield part

    def _renew(self) -> None:
        """Take up values that have changed since the last message; as long as they have not, they are one object.

        Of a sandbox that is gone nothing is known any more: what it said last is covered as it was before.
        """
        values = self._known()
        if values and values is not self._values:
            self._values = values
            for kind, cover in self._covers.items():
                cover.renew(self._values_in(kind))

    def _cover(self, kind: int) -> _Cover:
        if kind not in self._covers:
            self._covers[kind] = _Cover(self._values_in(kind))
        return self._covers[kind]

    def _values_in(self, _kind: int) -> Values:
        return self._values

    def _rests(self, before: guest.Message | None) -> Iterator[guest.Data]:
        """What waited, as far as it must go on before this message."""
        for kind, cover in self._covers.items():
            if not self._may_wait(kind, before):
                yield from _parts(kind, cover.rest())

    def _may_wait(self, _kind: int, before: guest.Message | None) -> bool:
        return isinstance(before, guest.Data)

    def _covered(self, message: guest.Message) -> guest.Message:
        """What is told in words, such as a result or an error of code: the texts in it, wherever they are."""
        if isinstance(message, guest.Event | guest.End | guest.Ok):
            return type(message)(_covered(message.value, self._values))
        return message


class _MaskedCode(_Masked):
    """The events of an execution, of which the caller has seen the first `skip` as they were covered then.

    They are read again from the beginning, because what was held back of them comes with a later one.
    """

    def __init__(self, stream: GuestStream, values: Callable[[], Values], skip: int) -> None:
        super().__init__(stream, values)
        self._skip = skip

    async def __aiter__(self) -> AsyncIterator[guest.Message]:
        left, leaves_result = self._skip, False
        async for message in super().__aiter__():
            if isinstance(message, guest.Data) and message.kind == framing.OUTPUT:
                if not leaves_result:
                    yield message
                continue
            if not _is_counted(message):
                yield message
                continue
            leaves_result = left > 0 and isinstance(message, guest.Event)
            if left > 0:
                left -= 1
            else:
                yield message

    def _values_in(self, kind: int) -> Values:
        if kind != framing.OUTPUT:
            return self._values
        # Results are JSON, where some characters are escaped.
        spelt = (json.dumps(value.decode("ascii"))[1:-1].encode("ascii") for value in self._values)
        return tuple(dict.fromkeys((*self._values, *spelt)))

    def _may_wait(self, kind: int, before: guest.Message | None) -> bool:
        """A result is complete before anything else; output before what takes it off the screen, and before the end."""
        if isinstance(before, guest.Data):
            return kind != framing.OUTPUT or before.kind == framing.OUTPUT
        return kind != framing.OUTPUT and isinstance(before, guest.Event) and before.value.get("type") != "cleared"


def _is_counted(message: guest.Message) -> bool:
    """Whether callers count it among the events of an execution."""
    return isinstance(message, guest.Data) or (
        isinstance(message, guest.Event) and message.value.get("type") in ("result", "error", "cleared")
    )


def _parts(kind: int, text: bytes) -> Iterator[guest.Data]:
    """As frames: with what waited it may be more than one."""
    for start in range(0, len(text), limits.FRAME_BYTES_MAX):
        yield guest.Data(kind, text[start : start + limits.FRAME_BYTES_MAX])


def _covered(value: Any, values: Values) -> Any:
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


def covered_values(now: Sequence[bytes], known: Values) -> Values:
    """What is covered from now on: the values of this moment, then those of before, the latest first, to a bound.

    Programs may hold a value that was rotated or taken away, and what they said of it can be read again. Nothing
    changed is the same object.
    """
    long_enough = [value for value in now if len(value) >= limits.SECRET_MASK_BYTES_MIN]
    values = tuple(dict.fromkeys((*long_enough, *known)))[: len(long_enough) + limits.SECRET_PAST_VALUES_MAX]
    return known if values == known else values


def masked_stream(stream: GuestStream, operation: str, values: Callable[[], Values], skip: int = 0) -> GuestStream:
    """The same operation with its output covered by what `values` gives then; others are the same object."""
    if not operation.startswith(_OPERATIONS):
        return stream
    return _MaskedCode(stream, values, skip) if operation.startswith("contexts.") else _Masked(stream, values)


def unskipped(operation: str, params: Mapping[str, Any], values: Values) -> tuple[Mapping[str, Any], int]:
    """What to ask the guest, and how many events to leave out of what it says: see `_MaskedCode`."""
    skip = params.get("skip") if operation == _ATTACH and values else None
    return ({**params, "skip": 0}, skip) if isinstance(skip, int) and skip > 0 else (params, 0)
