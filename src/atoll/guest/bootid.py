"""The id of this boot, as programs read it from /proc: each sandbox has its own, also one that is a copy of another.

The boundary's kernel keeps one in its memory, which all copies of a snapshot share. So a small file in memory lies over
it from the start, and gets new content with each new identity. It has no name: nobody can change it by accident.
"""

from __future__ import annotations

import os

from atoll.guest.mounting import bind

PATH = "/proc/sys/kernel/random/boot_id"
_DRAFT = "/dev/shm/.atoll-boot-id"


class BootId:
    """Where there is no place to lay it over, all stays as the kernel has it."""

    def __init__(self) -> None:
        self._fd = -1

    def lay_over(self) -> None:
        try:
            self._fd = os.open(_DRAFT, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
            self.renew(copied=False)
            bind(_DRAFT, PATH)
            os.unlink(_DRAFT)
        except OSError as error:
            os.write(2, f"guest: the id of the boot is the kernel's: {error}\n".encode())

    def renew(self, copied: bool) -> None:  # noqa: ARG002 - every identity has its own, copied or not
        """Another boot, for all that programs can tell."""
        if self._fd >= 0:
            os.pwrite(self._fd, f"{_uuid4(os.urandom(16))}\n".encode(), 0)


def _uuid4(chance: bytes) -> str:
    """In the form that Linux has; the module of this name would cost the guest memory."""
    number = int.from_bytes(chance, "big") & ~(0xF << 76) | 0x4 << 76
    digits = f"{number & ~(0x3 << 62) | 0x2 << 62:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
