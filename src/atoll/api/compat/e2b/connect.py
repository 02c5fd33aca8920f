"""The Connect protocol as E2B's clients speak it: JSON only, unary calls and enveloped streams; pure.

An envelope is a byte of flags, four bytes of length and JSON. The last one of a stream has the flag END and holds `{}`
or the error; the HTTP status of a stream is 200 whatever happened.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Any, Final

from atoll.model import limits
from atoll.model.errors import (
    AtollError,
    Conflict,
    DeadlineExceeded,
    Forbidden,
    GuestFailed,
    InvalidArgument,
    LimitExceeded,
    NotFound,
    OutOfSpace,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from atoll.wire import codec

UNARY: Final = "application/json"
STREAM: Final = "application/connect+json"
END: Final = 0x02
COMPRESSED: Final = 0x01

_HEAD = struct.Struct(">BI")
_MILLISECONDS = re.compile(r"[0-9]{1,10}(?:\.[0-9]{1,20})?")

_STATUS = {
    "canceled": 499,
    "invalid_argument": 400,
    "deadline_exceeded": 504,
    "not_found": 404,
    "already_exists": 409,
    "permission_denied": 403,
    "resource_exhausted": 429,
    "failed_precondition": 400,
    "unimplemented": 501,
    "internal": 500,
    "unavailable": 503,
    "unauthenticated": 401,
}

_CODES: tuple[tuple[type[AtollError], str], ...] = (
    (Unauthenticated, "unauthenticated"),
    (InvalidArgument, "invalid_argument"),
    (Forbidden, "permission_denied"),
    (NotFound, "not_found"),
    (Conflict, "failed_precondition"),
    (LimitExceeded, "resource_exhausted"),
    (TooLarge, "resource_exhausted"),
    (OutOfSpace, "internal"),  # clients take the other word for a limit of requests
    (DeadlineExceeded, "deadline_exceeded"),
    (Unavailable, "unavailable"),
    (GuestFailed, "unavailable"),
)

# What a guest says more exactly than the class of its error does.
_GUEST_CODES = {"unknown_user": "unauthenticated", "exists": "already_exists", "wrong_state": "failed_precondition"}


@dataclass(frozen=True, slots=True)
class Failure:
    """An error in the words of the protocol."""

    code: str
    message: str

    @property
    def status(self) -> int:
        return _STATUS[self.code]

    def body(self) -> dict[str, str]:
        return {"code": self.code, "message": self.message}


def failure_of(error: AtollError) -> Failure:
    code = _GUEST_CODES.get(error.code) or next((code for kind, code in _CODES if isinstance(error, kind)), "internal")
    return Failure(code, error.message)


def envelope(value: Any, flags: int = 0) -> bytes:
    payload = codec.encode(value)
    return _HEAD.pack(flags, len(payload)) + payload


def end(failure: Failure | None = None) -> bytes:
    """The last envelope of a stream."""
    return envelope({} if failure is None else {"error": failure.body()}, END)


class Envelopes:
    """Cuts the body of a request into the messages in it; what is too long or compressed is refused."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        self._buffer += data
        found = []
        while len(self._buffer) >= _HEAD.size:
            flags, length = _HEAD.unpack_from(self._buffer)
            if flags & COMPRESSED:
                raise InvalidArgument("compressed messages are not understood")
            if length > limits.JSON_BODY_BYTES_MAX:
                raise TooLarge(f"a message is longer than {limits.JSON_BODY_BYTES_MAX} bytes")
            if len(self._buffer) < _HEAD.size + length:
                break
            if not flags & END:
                found.append(bytes(self._buffer[_HEAD.size : _HEAD.size + length]))
            del self._buffer[: _HEAD.size + length]
        return found


def timeout_s(header: str) -> float | None:
    """The time that a caller gives an operation, from Connect-Timeout-Ms; None if it has no bound.

    Python's client of 2025 tells half a second as `500.0`.
    """
    if not header:
        return None
    if not _MILLISECONDS.fullmatch(header):
        raise InvalidArgument("Connect-Timeout-Ms is not a number of milliseconds")
    return min(max(float(header), 1.0) / 1000, float(limits.TIMEOUT_S_MAX))
