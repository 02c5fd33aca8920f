"""How much one sandbox has moved since it was made: two numbers in a file that is mapped into memory.

A cap is for a whole life, and a life outlasts the server. What was written to the map is the kernel's: a server that is
killed loses none of it. The file appears with the first byte, because most sandboxes never move any.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

_NUMBERS = struct.Struct("<QQ")


class Traffic:
    """The counters of one sandbox, kept in a file if there is a path for it."""

    def __init__(self, path: Path | None = None) -> None:
        self.bytes_up = 0
        self.bytes_down = 0
        self._path = path
        self._map: mmap.mmap | None = None
        if path is not None and path.exists():
            self._map = _open(path)
            self.bytes_up, self.bytes_down = _NUMBERS.unpack_from(self._map)

    def add(self, *, up: int, down: int) -> None:
        self.bytes_up += up
        self.bytes_down += down
        if self._map is None and self._path is not None:
            self._map = _open(self._path)
        if self._map is not None:
            _NUMBERS.pack_into(self._map, 0, self.bytes_up, self.bytes_down)

    @property
    def total(self) -> int:
        return self.bytes_up + self.bytes_down

    def close(self) -> None:
        """Nobody counts any more."""
        if self._map is not None:
            self._map.close()
        self._map = self._path = None


def _open(path: Path) -> mmap.mmap:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_size != _NUMBERS.size:  # new, or of a server that died between two calls
            os.ftruncate(descriptor, _NUMBERS.size)
        return mmap.mmap(descriptor, _NUMBERS.size)
    finally:
        os.close(descriptor)
