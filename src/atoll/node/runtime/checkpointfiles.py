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
def created(folder: Path, pages_fd: int | None = None) -> Iterator[list[int]]:
    """New files, to be written by a sentry; the pages go to `pages_fd`, if there is one."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    if pages_fd is None:
        with _opened(folder, ALL, flags) as fds:
            yield fds
    else:
        with _opened(folder, (STATE, PAGES_META), flags) as fds:
            yield [*fds, pages_fd]


@contextmanager
def existing(folder: Path) -> Iterator[list[int]]:
    """The same files, to be read by a sentry."""
    with _opened(folder, ALL, os.O_RDONLY | os.O_CLOEXEC) as fds:
        yield fds


@contextmanager
def _opened(folder: Path, names: tuple[str, ...], flags: int) -> Iterator[list[int]]:
    with ExitStack() as opened:
        fds = []
        for name in names:
            fds.append(os.open(folder / name, flags, 0o600))
            opened.callback(os.close, fds[-1])
        yield fds
