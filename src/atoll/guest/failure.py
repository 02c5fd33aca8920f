"""Errors that the guest reports: a stable code and words for a person."""

from __future__ import annotations

import errno
import os

from atoll.wire.framing import FrameError

_CODES = {
    errno.ENOENT: "not_found",
    errno.EACCES: "permission_denied",
    errno.EPERM: "permission_denied",
    errno.EISDIR: "is_directory",
    errno.ENOTDIR: "not_directory",
    errno.EEXIST: "exists",
    errno.ENOTEMPTY: "not_empty",
    errno.ENOSPC: "disk_full",
    errno.EDQUOT: "quota",
    errno.EROFS: "read_only",
    errno.ENAMETOOLONG: "invalid_argument",
    errno.EINVAL: "invalid_argument",
    errno.ELOOP: "invalid_argument",
    errno.EXDEV: "invalid_argument",
    errno.ENXIO: "invalid_argument",
    errno.EFBIG: "too_large",
    errno.E2BIG: "too_large",
    errno.ERANGE: "invalid_argument",
    errno.EMFILE: "busy",
    errno.ENFILE: "busy",
    errno.EBUSY: "busy",
    errno.ETXTBSY: "busy",
    errno.EAGAIN: "too_many_processes",
    errno.ENOMEM: "busy",
    errno.ESRCH: "no_such_process",
    errno.ENOTSUP: "unsupported",
    errno.ENOSYS: "unsupported",
    errno.ENODATA: "not_found",
    errno.ETIMEDOUT: "timeout",
}


class Refused(Exception):
    """The operation does not happen; the caller is told why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class TimeOver(BaseException):
    """The processor was used for too long. Nobody who handles lesser failures on the way may take it for one."""


class Disconnected(Exception):
    """The other side is gone, or no longer keeps to the protocol: there is nobody to report to."""


def refusal(error: BaseException) -> Refused:
    """What a caught exception is called on the wire."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, TimeOver):
        return Refused("timeout", str(error))
    if isinstance(error, OSError) and error.errno is not None:
        name = error.filename if isinstance(error.filename, str) else ""
        words = error.strerror or os.strerror(error.errno)
        return Refused(_CODES.get(error.errno, "internal"), f"{name}: {words}" if name else words)
    if isinstance(error, UnicodeError):
        return Refused("invalid_argument", "text that cannot be a name on this system")
    if isinstance(error, FrameError):
        return Refused("too_large", str(error))
    if isinstance(error, MemoryError):
        return Refused("too_large", "not enough memory for this operation")
    return Refused("internal", f"{type(error).__name__}: {error}"[:512])
