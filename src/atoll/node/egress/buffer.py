"""The buffer through which bytes pass, and how many of them wait in memory for an end that does not take them.

A connection reads one piece and waits until that is gone. The less room is left, of its sandbox's share and of all
sandboxes', the smaller the pieces are. A small one is always allowed: nobody stands still because others do not read.

HTTP/2 cannot stop reading, for what opens its windows comes on the same way as what waits for them. So it lets an end
send no more than was promised here beforehand. What is promised has the same bounds, in a book of its own: a promise is
kept for as long as its connection lasts, and what others only might send makes nobody's pieces smaller.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from atoll.model import limits

_PARTS = 16  # one piece takes this part of the room that is left, so that what waits comes near its bound and no nearer


class Waiting:
    """Bytes of all sandboxes that wait, and those that may come without being asked for again."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.promised_bytes = 0


class Buffer:
    """One sandbox's use of the buffer. `view` is shared by all: what it holds is gone with the turn of the loop."""

    def __init__(self, view: memoryview, waiting: Waiting) -> None:
        self._view = view
        self._all = waiting
        self._own = Waiting()

    @property
    def waiting_bytes(self) -> int:
        return self._own.size_bytes

    @property
    def promised_bytes(self) -> int:
        return self._own.promised_bytes

    def piece(self) -> memoryview:
        """Where to read into, as much as may be read now."""
        return self._view[: self.piece_bytes]

    @property
    def piece_bytes(self) -> int:
        """How much may be read now."""
        part = _part(self._own.size_bytes, self._all.size_bytes)
        return min(limits.EGRESS_CHUNK_BYTES, max(limits.EGRESS_PIECE_BYTES_MIN, part))

    @property
    def look_bytes(self) -> int:
        """How much may be read now where we look inside."""
        return min(limits.EGRESS_LOOK_BYTES, self.piece_bytes)

    def waits(self, more_bytes: int) -> None:
        """So much more waits now, or less."""
        self._own.size_bytes += more_bytes
        self._all.size_bytes += more_bytes

    @contextmanager
    def holding(self, size_bytes: int) -> Iterator[None]:
        """So much waits while the block lasts."""
        self.waits(size_bytes)
        try:
            yield
        finally:
            self.waits(-size_bytes)

    def promise(self, wanted_bytes: int) -> int:
        """How much more an end may send before the other has taken it; nothing, where little is left to promise."""
        part = min(wanted_bytes, _part(self._own.promised_bytes, self._all.promised_bytes))
        granted = part if part >= limits.EGRESS_PIECE_BYTES_MIN else 0
        self.release(-granted)
        return granted

    def release(self, size_bytes: int) -> None:
        """So much of what was promised will not come any more."""
        self._own.promised_bytes -= size_bytes
        self._all.promised_bytes -= size_bytes


def _part(own_bytes: int, all_bytes: int) -> int:
    """The part of what is left that one connection may have."""
    left = min(limits.EGRESS_WAITING_BYTES_MAX - own_bytes, limits.EGRESS_WAITING_TOTAL_BYTES_MAX - all_bytes)
    return left // _PARTS
