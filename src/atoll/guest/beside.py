"""Writing to a file while its next bytes arrive: both take about as long, so two threads make an upload faster."""

from __future__ import annotations

import os
import queue
import threading
from types import TracebackType

from atoll.model import limits


def write_fully(fd: int, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while len(rest):
        rest = rest[os.write(fd, rest) :]


class BesideWriter:
    """A few buffers that go round between the caller, who fills them, and a thread that writes them.

        with BesideWriter(fd) as writer:
            while got := source.read_into(writer.room()):
                writer.filled(got)

    What fails in the thread is raised in the caller, at the next buffer or at the end. Memory is bounded by the number
    of buffers: a slow disk holds the caller up.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._full: queue.SimpleQueue[memoryview | None] = queue.SimpleQueue()
        self._free: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
        for _ in range(limits.WRITE_BUFFERS - 1):
            self._free.put(memoryview(bytearray(limits.WRITE_BUFFER_BYTES)))
        self._current = memoryview(bytearray(limits.WRITE_BUFFER_BYTES))
        self._filled = 0
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._write_for_ever, daemon=True)

    def room(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return self._current[self._filled :]

    def filled(self, count: int) -> None:
        """So many bytes are there now."""
        self._filled += count
        if self._filled == len(self._current):
            self._hand_over()

    def _hand_over(self) -> None:
        self._full.put(self._current)
        if self._error is not None:
            raise self._error
        self._current = self._free.get()
        self._filled = 0

    def _write_for_ever(self) -> None:
        while (data := self._full.get()) is not None:
            if self._error is None:
                try:
                    write_fully(self._fd, data)
                except BaseException as error:  # raised where it is waited for
                    self._error = error
            self._free.put(memoryview(data.obj))

    def __enter__(self) -> BesideWriter:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._filled:
            self._full.put(self._current[: self._filled])
        self._full.put(None)
        self._thread.join()
        if error is None and self._error is not None:
            raise self._error
