"""Reading a file, whole or by range, as a stream of frames."""

from __future__ import annotations

import os
import stat

from atoll.guest.channel import Channel
from atoll.guest.failure import Refused
from atoll.guest.listing import describe
from atoll.guest.params import Params, integer, optional_integer, path
from atoll.guest.users import User
from atoll.model import limits
from atoll.wire import framing

_SMALL_BYTES = 64 * limits.KIB  # the least that is read at once: fresh memory costs more here than elsewhere


def open_regular(name: str) -> tuple[int, os.stat_result]:
    """A descriptor of a regular file. Opened without waiting, so that a pipe with no writer holds nobody up."""
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode):
        return fd, found
    os.close(fd)
    if stat.S_ISDIR(found.st_mode):
        raise Refused("is_directory", f"{name}: is a directory")
    raise Refused("invalid_argument", f"{name}: not a regular file")


def read(user: User, params: Params, channel: Channel) -> None:
    """Until the end or `length`, whichever comes first. What /proc calls a size is not believed."""
    name = path(params, user.home)
    offset = integer(params, "offset", 0)
    length = optional_integer(params, "length")
    fd, found = open_regular(name)
    try:
        buffer = bytearray(min(limits.FRAME_BYTES_MAX, max(_SMALL_BYTES, found.st_size + 1)))
        with memoryview(buffer) as view:
            first = view[:length]
            sent, ended = _fill(fd, first, offset)
            told = {"offset": offset, **describe(name, found)}
            if ended and (sent or not offset):
                # A file that is being rewritten has another size by now: what was read is what is told.
                told["size"] = offset + sent
            channel.send_event("opened", told)
            if sent:
                channel.send_data(framing.OUTPUT, first[:sent])
            while not ended and (length is None or sent < length):
                wanted = len(buffer) if length is None else min(len(buffer), length - sent)
                got = os.preadv(fd, [view[:wanted]], offset + sent)
                if got == 0:
                    break
                channel.send_data(framing.OUTPUT, view[:got])
                sent += got
        channel.send_end({"bytes": sent})
    finally:
        os.close(fd)


def _fill(fd: int, view: memoryview, offset: int) -> tuple[int, bool]:
    """Reads until the view is full or the file ends: how many bytes, and whether it ended."""
    filled = 0
    while filled < len(view):
        got = os.preadv(fd, [view[filled:]], offset + filled)
        if got == 0:
            return filled, True
        filled += got
    return filled, False
