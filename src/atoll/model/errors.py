"""Errors, in one tree: what went wrong, whose move it is, and a code that programs can rely on.

AtollError
├── InvalidArgument      400  the caller must change the request
├── Unauthenticated      401  no key, or a key that is not known
├── Forbidden            403  and it is no secret that the thing exists
├── NotFound             404  or the caller may not know
├── MethodNotAllowed     405  the path exists, but not with this method
├── Conflict             409  right request, wrong state
├── TooLarge             413  a body, a file or an answer over its bound
├── LimitExceeded        429  quota or rate
├── GuestFailed          502  what runs inside the sandbox did not keep the protocol
├── Unavailable          503  retry later: no capacity, node lost, pool full
│   └── ConnectionFailed      no server answers, or its answer was cut off (raised by the SDK)
├── DeadlineExceeded     504  it took too long
├── OutOfSpace           507  the sandbox's disk or the pool is full
├── CommandFailed             a command that was to be checked ended with an exit code other than 0 (raised by the SDK)
├── CodeFailed                code that was to be checked failed (raised by the SDK)
└── Internal             500  our bug, or a host that misbehaves

`code` is stable and narrower than the class ("name_taken" is a Conflict). `hint` says what to do. `detail` is for the
log and never leaves the server. The HTTP status is written here, beside the meaning, so that the edge only copies it.
"""

from __future__ import annotations

from typing import Any, ClassVar


class AtollError(Exception):
    """Anything that Atoll reports on purpose."""

    default_code: ClassVar[str] = "internal"
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, code: str = "", hint: str = "", detail: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.hint = hint
        self.detail = detail
        self.log = ""
        """What led to it, step by step, for the owner of a sandbox that did not start; set where that is known."""
        self.failed_ways: tuple[str, ...] = ()
        """The ways to make that sandbox that had failed before, while there was another."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.code}: {self.message})"


class InvalidArgument(AtollError):
    default_code = "invalid_argument"
    http_status = 400


class Unauthenticated(AtollError):
    default_code = "unauthenticated"
    http_status = 401


class Forbidden(AtollError):
    default_code = "forbidden"
    http_status = 403


class NotFound(AtollError):
    default_code = "not_found"
    http_status = 404


class MethodNotAllowed(AtollError):
    """The path exists, but not with this method."""

    default_code = "method_not_allowed"
    http_status = 405

    def __init__(self, message: str, *, allowed: tuple[str, ...], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.allowed = allowed


class Conflict(AtollError):
    default_code = "conflict"
    http_status = 409


class TooLarge(AtollError):
    default_code = "too_large"
    http_status = 413


class LimitExceeded(AtollError):
    """A quota or a rate. `retry_after_s` says when it is worth trying again, where that is known."""

    default_code = "limit_exceeded"
    http_status = 429
    retryable = True

    def __init__(
        self, message: str, *, code: str = "", hint: str = "", detail: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, code=code, hint=hint, detail=detail)
        self.retry_after_s = retry_after_s


class GuestFailed(AtollError):
    """The sandbox's inside answered garbage, too much, or not at all."""

    default_code = "guest_failed"
    http_status = 502


class Unavailable(AtollError):
    default_code = "unavailable"
    http_status = 503
    retryable = True


class ConnectionFailed(Unavailable):
    """No server answers, or the connection broke before its answer was complete. Only the SDK raises it."""

    default_code = "no_server"


class DeadlineExceeded(AtollError):
    default_code = "deadline_exceeded"
    http_status = 504


class OutOfSpace(AtollError):
    default_code = "disk_full"
    http_status = 507


class Internal(AtollError):
    default_code = "internal"
    http_status = 500


class CommandFailed(AtollError):
    """A command run with `check=True` failed; `result` has its output. Only the SDK raises it."""

    default_code = "command_failed"

    def __init__(self, message: str, *, result: Any, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.result = result


class CodeFailed(AtollError):
    """Code that was to be checked failed; `result` has all that came of it. Only the SDK raises it."""

    default_code = "code_failed"

    def __init__(self, message: str, *, result: Any, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.result = result


KINDS: dict[str, type[AtollError]] = {
    kind.__name__: kind
    for kind in (
        InvalidArgument,
        Unauthenticated,
        Forbidden,
        NotFound,
        Conflict,
        TooLarge,
        LimitExceeded,
        GuestFailed,
        Unavailable,
        DeadlineExceeded,
        OutOfSpace,
        Internal,
    )
}

# A guest reports errors by code alone; this is what each becomes on our side. A code that is not listed is the guest's
# invention and becomes GuestFailed.
GUEST_CODES: dict[str, type[AtollError]] = {
    "invalid_argument": InvalidArgument,
    "unknown_user": InvalidArgument,
    "is_directory": InvalidArgument,
    "not_directory": InvalidArgument,
    "unsafe_archive": InvalidArgument,
    "no_such_program": InvalidArgument,
    "unsupported": InvalidArgument,
    "permission_denied": Forbidden,
    "read_only": Forbidden,
    "not_found": NotFound,
    "no_such_process": NotFound,
    "exists": Conflict,
    "not_empty": Conflict,
    "wrong_state": Conflict,
    "reseed_failed": Conflict,
    "too_large": TooLarge,
    "busy": LimitExceeded,
    "too_many_processes": LimitExceeded,
    "timeout": DeadlineExceeded,
    "disk_full": OutOfSpace,
    "quota": OutOfSpace,
}


def from_guest(code: str, message: str) -> AtollError:
    """The error that a guest's reply stands for; its words are shown, its code only if it is one of ours."""
    kind = GUEST_CODES.get(code)
    if kind is None:
        return GuestFailed(
            "the sandbox reported an error that it has no name for", detail=f"{code[:64]!r}: {message[:512]!r}"
        )
    return kind(message[:1024], code=code)
