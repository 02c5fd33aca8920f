"""What all bodies share: requests, answers, and the shape of an error."""

from __future__ import annotations

import msgspec


class Request(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Something a caller sends."""


class Answer(msgspec.Struct, kw_only=True):
    """Something the server sends."""


class Problem(Answer):
    """An error (RFC 9457, problem+json). `code` is stable; `hint` says what to do."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    hint: str = ""
    retryable: bool = False
    request_id: str = ""


class Health(Answer):
    status: str
    version: str
