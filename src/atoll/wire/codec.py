"""JSON to typed values and back; a body that does not fit is an error of whoever sent it.

Names in a sandbox need not be UTF-8. They travel as surrogate escapes, written `\\udcXX` in JSON, which the fast codec
refuses; texts that have them take the slower way through the standard library and arrive as the same bytes.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Hashable
from typing import Any, TypeVar, cast

import msgspec

from atoll.model.errors import GuestFailed, InvalidArgument

T = TypeVar("T")


@functools.lru_cache(maxsize=256)
def _decoder(kind: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(cast(Any, kind))


_encoder = msgspec.json.Encoder()
_encoder_alike = msgspec.json.Encoder(order="deterministic")


def encode(value: Any) -> bytes:
    """A body as JSON."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode("ascii")


def encode_alike(value: Any) -> bytes:
    """A value as JSON that is the same for equal values, in whatever order their mappings and sets are."""
    try:
        return _encoder_alike.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value, order="deterministic"), separators=(",", ":")).encode("ascii")


def decode(body: bytes, kind: type[T]) -> T:
    """A request body as a typed value; InvalidArgument (invalid_body) says what is wrong with it."""
    try:
        return _decode(body, kind)
    except (ValueError, RecursionError) as error:  # msgspec's errors and bad UTF-8 are ValueErrors
        raise InvalidArgument(
            f"the body cannot be read as {kind.__name__}: {str(error)[:300]}",
            code="invalid_body",
            hint="Send JSON that has the fields and types of the API's description, /openapi.json.",
        ) from None


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        value: T = _decoder(cast(Hashable, kind)).decode(body)
        return value
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if b"\\ud" not in body and b"\\uD" not in body:
            raise
        return msgspec.convert(json.loads(body), kind)


def query(values: dict[str, Any], kind: type[T]) -> T:
    """Query parameters, all texts, as a typed value."""
    try:
        return msgspec.convert(values, kind, strict=False)
    except ValueError as error:
        raise InvalidArgument(f"a query parameter is wrong: {str(error)[:300]}", code="invalid_query") from None


def from_guest(value: Any, kind: type[T]) -> T:
    """What a guest said, as a typed value; GuestFailed if it said something else."""
    try:
        return msgspec.convert(value, kind)
    except (ValueError, RecursionError) as error:
        raise GuestFailed(
            "the sandbox answered something that cannot be understood", detail=f"{kind}: {str(error)[:300]}"
        ) from None
