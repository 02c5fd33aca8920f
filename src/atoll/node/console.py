"""Where the first program of a box writes: a file in memory that cannot grow, read only if its start fails.

Not a file on disk: whoever is root inside could fill that. What does not fit is lost, and nobody waits for it.
"""

from __future__ import annotations

import fcntl
import os

from atoll.model import limits

_SEALS = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK if hasattr(fcntl, "F_SEAL_GROW") else 0x0004 | 0x0002


class Console:
    def __init__(self) -> None:
        self.fd = os.memfd_create("atoll-console", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, limits.CONSOLE_BYTES_MAX)  # takes no memory until it is written
        fcntl.fcntl(self.fd, getattr(fcntl, "F_ADD_SEALS", 1033), _SEALS)

    def text(self) -> str:
        """All that was written. The writer may have an offset of its own, so the end is where the zeros begin."""
        if self.fd < 0:
            return ""
        return os.pread(self.fd, limits.CONSOLE_BYTES_MAX, 0).rstrip(b"\0").decode(errors="replace").strip()

    def close(self) -> None:
        """Idempotent."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)
