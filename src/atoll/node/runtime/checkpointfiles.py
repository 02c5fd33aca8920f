"""The files of a checkpoint, as the sentry takes them: descriptors in an order of its own.

A sentry starts no task before it has read the last byte of `pages_meta.img`: behind the page ranges of the main memory,
whose pages it loads from then on, are those of other memories, of which ours have none. That file is small and read
from its beginning to its end. So it can come through a pipe, and whoever keeps back its last byte keeps back the life.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

STATE = "checkpoint.img"
PAGES_META = "pages_meta.img"
PAGES = "pages.img"
ALL = (STATE, PAGES_META, PAGES)
_PIPE_BYTES = 65_536  # what a pipe holds by itself
_PIPE_BYTES_MAX = 1 << 20  # and what anybody may ask of the kernel


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


class Withheld:
    """The same files, but for the last byte of the pages' ranges."""

    def __init__(self, fds: list[int], pipe: IO[bytes], last: bytes) -> None:
        self.fds = fds
        self._pipe = pipe
        self._last = last

    def give(self) -> None:
        """The last byte."""
        self._pipe.write(self._last)
        self._pipe.close()

    def refuse(self) -> None:
        """An end in its place, unless it was given: the sentry gives up."""
        self._pipe.close()


def withholdable(folder: Path) -> bool:
    """Whether the ranges fit into a pipe, and there is a byte to keep back."""
    return 0 < (folder / PAGES_META).stat().st_size <= _PIPE_BYTES_MAX


@contextmanager
def withheld(folder: Path) -> Iterator[Withheld]:
    """To be given to a sentry while it is still looked at what it is to load."""
    meta = (folder / PAGES_META).read_bytes()
    with _opened(folder, (STATE, PAGES), os.O_RDONLY | os.O_CLOEXEC) as (state, pages), _pipe(meta[:-1]) as (out, into):
        yield Withheld([state, out, pages], into, meta[-1:])


@contextmanager
def _pipe(content: bytes) -> Iterator[tuple[int, IO[bytes]]]:
    """A pipe with something in it: the end to read from, and the one to write to."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        with open(writer, "wb", buffering=0) as into:
            if len(content) >= _PIPE_BYTES:
                fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES_MAX)
            into.write(content)
            yield reader, into
    finally:
        os.close(reader)


@contextmanager
def _opened(folder: Path, names: tuple[str, ...], flags: int) -> Iterator[list[int]]:
    with ExitStack() as opened:
        fds = []
        for name in names:
            fds.append(os.open(folder / name, flags, 0o600))
            opened.callback(os.close, fds[-1])
        yield fds
