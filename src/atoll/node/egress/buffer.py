"""The buffer through which bytes pass, and how many of them wait in memory for an end that does not take them.

A connection reads one piece and waits until that is gone. The less room is left, of its sandbox's share and of all
sandboxes', the smaller the pieces are. A small one is always allowed: nobody stands still because others do not read.
"""

from __future__ import annotations

from atoll.model import limits

_PARTS = 16  # one piece takes this part of the room that is left, so that what waits comes near its bound and no nearer


class Waiting:
    """Bytes of all sandboxes that wait."""

    def __init__(self) -> None:
        self.size_bytes = 0


class Buffer:
    """One sandbox's use of the buffer. `view` is shared by all: what it holds is gone with the turn of the loop."""

    def __init__(self, view: memoryview, waiting: Waiting) -> None:
        self._view = view
        self._all = waiting
        self._own = Waiting()

    @property
    def waiting_bytes(self) -> int:
        return self._own.size_bytes

    def piece(self) -> memoryview:
        """Where to read into, as much as may be read now."""
        left_bytes = min(
            limits.EGRESS_WAITING_BYTES_MAX - self._own.size_bytes,
            limits.EGRESS_WAITING_TOTAL_BYTES_MAX - self._all.size_bytes,
        )
        return self._view[: max(limits.EGRESS_PIECE_BYTES_MIN, left_bytes // _PARTS)]

    def waits(self, more_bytes: int) -> None:
        """So much more waits now, or less."""
        self._own.size_bytes += more_bytes
        self._all.size_bytes += more_bytes
