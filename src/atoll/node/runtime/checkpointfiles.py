"""The files of a checkpoint, as the sentry takes them: descriptors in an order of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

STATE = "checkpoint.img"
PAGES_META = "pages_meta.img"
PAGES = "pages.img"
ALL = (STATE, PAGES_META, PAGES)


@contextmanager
def created(folder: Path) -> Iterator[list[int]]:
    """New files, to be written by a sentry."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with _opened(folder, flags) as fds:
        yield fds


@contextmanager
def existing(folder: Path) -> Iterator[list[int]]:
    """The same files, to be read by a sentry."""
    with _opened(folder, os.O_RDONLY | os.O_CLOEXEC) as fds:
        yield fds


@contextmanager
def _opened(folder: Path, flags: int) -> Iterator[list[int]]:
    with ExitStack() as opened:
        fds = []
        for name in ALL:
            fds.append(os.open(folder / name, flags, 0o600))
            opened.callback(os.close, fds[-1])
        yield fds
