"""Small files that only their owner may read: made once, whole or not at all, and never replaced by accident."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from atoll.model.errors import Internal
from atoll.node.disks import btrfs


def read_or_make(path: Path, make: Callable[[], bytes]) -> bytes:
    """What is in the file; what `make` gives, kept there from now on, if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        data = make()
        write(path, data)
        return data
    except OSError as error:
        raise Internal(f"the file {path} cannot be read: {error.strerror}", code="bad_private_file") from error


def write(path: Path, data: bytes) -> None:
    """A new file; a crash leaves it whole or not there."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def make_in_place(path: Path) -> None:
    """A file, empty if it is new, that is changed in place where the filesystem would else copy; others ignore that."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(fd).st_size == 0:  # it cannot be changed for what is there already
            with contextlib.suppress(OSError):
                btrfs.change_in_place(fd)
    finally:
        os.close(fd)
