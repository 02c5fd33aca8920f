"""A memory image taken from its writer in memory: hashed and written out at the same time, or kept there for a while.

A writer that writes to a file of its own is slowed down by the filesystem (on btrfs, to half), and only when it has
done can the file be hashed, and only then is it waited for until it is on the disk. Here the writer writes to memory,
and what it has written is hashed and on the disk a few milliseconds after it has done. What is needed only for moments,
to make copies from, need not reach the disk at all.

The writer must write from the beginning to the end and never twice in a place.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from atoll.model import limits
from atoll.node.disks import btrfs
from atoll.node.imagekey import Digest

_PAGE = 4096
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
KEPT = "kept in memory"
_libc = ctypes.CDLL(None, use_errno=True)


class Inflow:
    """What a writer writes to `fd`, which is memory."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._begun = threading.Event()
        self._whole = threading.Event()

    def make_room(self, size_bytes: int) -> None:
        """Have so much memory ready. So the writer need not wait for it, nor is it charged to the writer's limits."""
        _libc.fallocate(self.fd, _KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(size_bytes))

    def finish(self) -> None:
        """The writer has done. Must be called, or `run` never returns."""
        self._whole.set()
        self._begun.set()

    def wait_begun(self) -> bool:
        """Returns when the first byte is there; False if none ever will be."""
        self._begun.wait()
        return os.fstat(self.fd).st_size > 0

    def _wait_more(self, size_bytes: int) -> None:
        """Until there are so many bytes, or all."""
        while not self._whole.is_set():
            size = os.fstat(self.fd).st_size
            if size:
                self._begun.set()
            if size >= size_bytes:
                return
            self._whole.wait(limits.OUTFLOW_POLL_S)

    def _wait_whole(self) -> None:
        self._wait_more(1)
        self._whole.wait()


class Kept(Inflow):
    """All of it stays where it is. Whoever else has the descriptor cannot change it any more when `run` returns."""

    def run(self) -> str:
        """In the place of a hash: nothing is to be compared with what the kernel lets nobody change."""
        self._wait_whole()
        size = os.fstat(self.fd).st_size
        _punch(self.fd, -(-size // _PAGE) * _PAGE, limits.OUTFLOW_MEMORY_BYTES_MAX)  # what was too much room
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALS)
        return KEPT

    def close(self) -> None:
        """It is its image's."""


class Outflow(Inflow):
    """Into the file at `path`, which must not exist yet. One that is `patient` lets the writer come to its end first,
    whom it would take a processor from.
    """

    def __init__(self, path: Path, digest: Digest, *, patient: bool = False) -> None:
        super().__init__(memory_open())
        self._path = path
        self._digest = digest
        self._patient = patient

    def close(self) -> None:
        os.close(self.fd)

    def run(self) -> str:
        """Write all of it to the disk; returns its digest, when it is there as far as the file's own bytes go."""
        if self._patient:
            self._wait_whole()
        writing: deque[Future[int]] = deque()
        with _out_opened(self._path) as out, ThreadPoolExecutor(limits.OUTFLOW_WRITERS) as writers:
            done_bytes = 0
            while piece := self._next(done_bytes):
                writing.append(writers.submit(_write, out, piece, done_bytes))
                self._digest.update(piece)
                done_bytes += len(piece)
                if len(writing) > limits.OUTFLOW_WRITERS:
                    start = writing.popleft().result()  # an error of the disk comes out here
                    writers.submit(_punch, self.fd, start, limits.OUTFLOW_PIECE_BYTES)  # hashed and written
            for last in writing:
                last.result()
            if done_bytes % _PAGE:
                os.ftruncate(out, done_bytes)
        return self._digest.told()

    def _next(self, start: int) -> memoryview:
        """What comes next, as soon as a whole piece of it is there, or all; empty at the end. It is not copied."""
        self._wait_more(start + limits.OUTFLOW_PIECE_BYTES)
        count = min(limits.OUTFLOW_PIECE_BYTES, os.fstat(self.fd).st_size - start)
        if not count:
            return memoryview(b"")
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        return memoryview(mmap.mmap(self.fd, count, flags=flags, prot=mmap.PROT_READ, offset=start))


def memory_open() -> int:
    return os.memfd_create("atoll-image", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


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


def _write(out: int, piece: memoryview, start: int) -> int:
    """All of a piece to the disk; says where it began. The last one is written in whole pages and cut later."""
    size = -(-len(piece) // _PAGE) * _PAGE
    whole = piece if size == len(piece) else memoryview(bytes(piece).ljust(size, b"\0"))
    done = 0
    while done < len(whole):
        done += _pwrite(out, whole[done:], start + done)
    return start


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
