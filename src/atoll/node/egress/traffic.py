"""How much one sandbox has moved since it was made: two numbers in a file.

A cap is for a whole life, and a life outlasts the server. What was written is the kernel's: a server that is killed
loses none of it. It is written and not mapped: a page of a map for which the disk has no room would end the server. The
file appears with the first byte, because most sandboxes never move any.
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

_NUMBERS = struct.Struct("<QQ")


class Traffic:
    """The counters of one sandbox, kept in a file if there is a path for it."""

    def __init__(self, path: Path | None = None) -> None:
        self.bytes_up = 0
        self.bytes_down = 0
        self.moved_at_s = 0.0
        """When the last of them passed here, by the monotonic clock."""
        self._path = path
        self._descriptor = -1
        if path is not None and path.exists():
            self._descriptor = _open(path)
            known = os.pread(self._descriptor, _NUMBERS.size, 0)
            if len(known) == _NUMBERS.size:  # else of a server that died between two calls
                self.bytes_up, self.bytes_down = _NUMBERS.unpack(known)

    def add(self, *, up: int, down: int) -> None:
        self.bytes_up += up
        self.bytes_down += down
        self.moved_at_s = time.monotonic()
        if self._path is not None:
            try:
                self._write(self._path)
            except OSError:
                return  # without room: what is counted here holds as long as the server runs; the next call tries again

    def _write(self, path: Path) -> None:
        if self._descriptor < 0:
            self._descriptor = _open(path)
        os.pwrite(self._descriptor, _NUMBERS.pack(self.bytes_up, self.bytes_down), 0)

    @property
    def total(self) -> int:
        return self.bytes_up + self.bytes_down

    def close(self) -> None:
        """Nobody counts any more."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._path = -1, None


def _open(path: Path) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
