"""Errors as problem+json (RFC 9457): the status and the code come from the error itself, nothing is decided here."""

from __future__ import annotations

import math
import re

from starlette.types import Message, Send

from atoll.model.errors import AtollError, Internal, LimitExceeded, MethodNotAllowed, NotFound, Unauthenticated
from atoll.wire import codec
from atoll.wire.public import Problem

MEDIA_TYPE = "application/problem+json"


class ClientGone(Exception):
    """The caller has left; there is nobody to answer."""


def unknown_route(path: str) -> NotFound:
    return NotFound(f"there is nothing at {path[:200]}", hint="The API is described at /openapi.json.")


def of_exception(error: Exception) -> AtollError:
    """The error that a caller is told of; what was not raised on purpose is our bug and says nothing of its inside."""
    if isinstance(error, AtollError):
        return error
    return Internal("something went wrong inside the server", hint="Its log has the details under this request id.")


def problem_of(error: AtollError, request_id: str) -> Problem:
    return Problem(
        type=f"urn:atoll:error:{error.code}",
        title=_title(type(error)),
        status=error.http_status,
        code=error.code,
        detail=error.message,
        hint=error.hint,
        retryable=error.retryable,
        request_id=request_id,
    )


async def send_problem(error: AtollError, request_id: str, send: Send) -> None:
    body = codec.encode(problem_of(error, request_id))
    headers = [
        (b"content-type", MEDIA_TYPE.encode("ascii")),
        (b"content-length", str(len(body)).encode("ascii")),
    ]
    if isinstance(error, Unauthenticated):
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", ", ".join(error.allowed).encode("ascii")))
    if isinstance(error, LimitExceeded) and error.retry_after_s is not None:
        headers.append((b"retry-after", str(math.ceil(error.retry_after_s)).encode("ascii")))
    if error.http_status == 413:
        headers.append((b"connection", b"close"))  # the rest of the body is not worth reading
    await send({"type": "http.response.start", "status": error.http_status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def as_refusal(send: Send) -> Send:
    """Send an HTTP answer in place of a WebSocket that was not accepted."""

    async def translated(message: Message) -> None:
        await send({**message, "type": message["type"].replace("http.response", "websocket.http.response")})

    return translated


def _title(kind: type[AtollError]) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__).capitalize()
