"""How far a transfer has come."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, Any

Progress = Callable[[int, int | None], Any]


class Meter:
    """Counts bytes and tells a callback: how many are done, and how many there are if that is known."""

    def __init__(self, total_bytes: int | None, tell: Progress | None) -> None:
        self._total_bytes = total_bytes
        self._tell = tell
        self.done_bytes = 0

    def add(self, count_bytes: int) -> None:
        self.done_bytes += count_bytes
        if self._tell is not None:
            self._tell(self.done_bytes, self._total_bytes)

    def reading(self, file: IO[bytes]) -> MeteredFile:
        return MeteredFile(file, self)


class MeteredFile:
    """A file whose reads are counted. What was read is as good as sent: the rest is in flight."""

    def __init__(self, file: IO[bytes], meter: Meter) -> None:
        self._file = file
        self._meter = meter

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._meter.add(len(data))
        return data

    def __iter__(self) -> MeteredFile:
        return self

    def __next__(self) -> bytes:
        data = self.read(64 * 1024)
        if not data:
            raise StopIteration
        return data
