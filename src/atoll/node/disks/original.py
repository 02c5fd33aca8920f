"""One file of a disk, opened safely, and what can be seen of it besides its bytes, in the guest's words.

What is on the disk was put there by a guest: each folder is opened relative to the one above it, and nothing followed.
"""

from __future__ import annotations

import base64
import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from atoll.model import limits
from atoll.model.errors import InvalidArgument, NotFound

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Original:
    """A file that is open; its descriptor is its owner's to close."""

    fd: int
    size_bytes: int
    likeness: dict[str, Any]
    folders: list[dict[str, Any]]
    """The likenesses of all folders above it, from the top."""


def original_open(root: Path, path: str) -> Original:
    """A regular file; a path that leads over a link is refused."""
    parts = PurePosixPath(path).parts[1:]
    if not path.startswith("/") or not parts or ".." in parts or "\0" in path or len(path) > limits.PATH_BYTES_MAX:
        raise InvalidArgument(f"{path[:80]!r} is not the absolute path of a file", code="invalid_argument")
    folders: list[dict[str, Any]] = []
    folder = os.open(root, _FOLDER)
    try:
        for part in parts[:-1]:
            below = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = below
            folders.append(_likeness(folder))
        fd = os.open(parts[-1], _FILE, dir_fd=folder)
    except FileNotFoundError:
        raise NotFound(f"there is no {path[:200]!r} in the snapshot", code="not_found") from None
    except OSError as error:
        raise InvalidArgument(f"{path[:200]!r} is not a file of its own", code="invalid_argument") from error
    finally:
        os.close(folder)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidArgument(f"{path[:200]!r} is not a regular file", code="invalid_argument")
        return Original(fd, status.st_size, {**_likeness(fd), "attributes": _attributes(fd)}, folders)
    except BaseException:
        os.close(fd)
        raise


def _likeness(fd: int) -> dict[str, Any]:
    status = os.fstat(fd)
    return {
        "mode": stat.S_IMODE(status.st_mode),
        "uid": status.st_uid,
        "gid": status.st_gid,
        "mtime_ns": status.st_mtime_ns,
    }


def _attributes(fd: int) -> dict[str, str]:
    """Those that a program inside may have set, values in base64; of one that has too many, as many as there may be."""
    found: dict[str, str] = {}
    left_bytes = limits.SNAPSHOT_XATTR_BYTES_MAX
    for name in os.listxattr(fd):
        if not name.startswith("user.") and name != "security.capability":
            continue
        value = os.getxattr(fd, name)
        left_bytes -= len(value)
        if left_bytes < 0:
            break
        found[name] = base64.b64encode(value).decode()
    return found
