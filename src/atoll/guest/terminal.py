"""Pseudo-terminals: a pair, its owner and its size."""

from __future__ import annotations

import fcntl
import os
import struct
import termios

from atoll.guest.users import User


def open_pair(cols: int, rows: int, user: User) -> tuple[int, int]:
    """Master and slave. The slave belongs to the user, so that programs can open /dev/tty and /dev/pts/N again."""
    master, slave = os.openpty()
    try:
        resize(master, cols, rows)
        try:
            os.fchown(slave, user.uid, -1)
            os.fchmod(slave, 0o620)
        except OSError:
            pass  # where terminals have no owner of their own, all may open them
    except BaseException:
        os.close(master)
        os.close(slave)
        raise
    return master, slave


def resize(fd: int, cols: int, rows: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
