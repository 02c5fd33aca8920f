"""A memory image on its way to the disk: taken from its writer in memory, hashed and written out at the same time.

A writer that writes to a file of its own is slowed down by the filesystem (on btrfs, to half), and only when it has
done can the file be hashed, and only then is it waited for until it is on the disk. Here the writer writes to memory,
and what it has written is hashed and on the disk a few milliseconds after it has done.

The writer must write from the beginning to the end and never twice in a place.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import itertools
import mmap
import os
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from atoll.model import limits
from atoll.node.disks import btrfs

_PAGE = 4096
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)


class Outflow:
    """The file at `path`, which must not exist yet. `fd` is what the writer writes to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._whole = threading.Event()
        self.fd = os.memfd_create("atoll-image", os.MFD_CLOEXEC)

    def close(self) -> None:
        os.close(self.fd)

    def finish(self) -> None:
        """The writer has done. Must be called, or `run` never returns."""
        self._whole.set()

    def run(self) -> str:
        """Write all of it to the disk; returns its hash, when it is there as far as the file's own bytes go."""
        digest = hashlib.sha256()
        writing: deque[Future[None]] = deque()
        with _out_opened(self._path) as out, ThreadPoolExecutor(limits.OUTFLOW_WRITERS) as writers:
            done_bytes = 0
            for buffer in _buffers():
                if len(writing) > limits.OUTFLOW_WRITERS:
                    writing.popleft().result()  # the one that this buffer was for; an error of the disk comes out here
                piece = self._next(buffer, done_bytes)
                if not piece:
                    break
                writing.append(writers.submit(self._write, out, piece, done_bytes))
                digest.update(piece)
                done_bytes += len(piece)
            for last in writing:
                last.result()
            if done_bytes % _PAGE:
                os.ftruncate(out, done_bytes)
        return digest.hexdigest()

    def _next(self, buffer: memoryview, start: int) -> memoryview:
        """What comes next, as soon as a whole buffer of it is there, or all; empty at the end."""
        while True:
            whole = self._whole.is_set()  # asked first: then what is there is all
            if whole or os.fstat(self.fd).st_size - start >= len(buffer):
                return buffer[: os.preadv(self.fd, [buffer], start)]
            self._whole.wait(limits.OUTFLOW_POLL_S)

    def _write(self, out: int, piece: memoryview, start: int) -> None:
        """All of a piece to the disk; then its memory is free. The last one is written in whole pages and cut later."""
        size = -(-len(piece) // _PAGE) * _PAGE
        whole = piece if size == len(piece) else memoryview(bytes(piece).ljust(size, b"\0"))
        done = 0
        while done < len(whole):
            done += _pwrite(out, whole[done:], start + done)
        _punch(self.fd, start, len(piece))


def _buffers() -> Iterator[memoryview]:
    """In turn: one is filled and hashed while the others are written. On page borders, as the disk wants them."""
    size = limits.OUTFLOW_PIECE_BYTES
    count = limits.OUTFLOW_WRITERS + 1
    area = memoryview(mmap.mmap(-1, count * size))
    return itertools.cycle([area[number * size : (number + 1) * size] for number in range(count)])


@contextlib.contextmanager
def _out_opened(path: Path) -> Iterator[int]:
    """Past the page cache where that is to be had: the bytes are read once more at most, when they are needed again."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        # On btrfs a file that is not copied on write takes bytes as they are, at three times the speed. Its checksums
        # go with that; the manifest has a better one.
        with contextlib.suppress(OSError):
            btrfs.change_in_place(fd)
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETFL, os.O_DIRECT)
        yield fd
    finally:
        os.close(fd)


def _pwrite(fd: int, data: memoryview, start: int) -> int:
    try:
        return os.pwrite(fd, data, start)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        fcntl.fcntl(fd, fcntl.F_SETFL, 0)  # this filesystem does not write past the page cache after all
        return os.pwrite(fd, data, start)


def _punch(fd: int, start: int, count: int) -> None:
    """Give back the memory of what is on the disk. Where that fails it is given back at the end."""
    _libc.fallocate(fd, _PUNCH_HOLE | _KEEP_SIZE, ctypes.c_int64(start), ctypes.c_int64(count))
