"""Whether a box stands still, on record: a sentry panics when it is told to go on and does go on already.

runs (no file) --"moving"--> pause --"still"--> stands still --"moving"--> resume --no file--> runs
"""

from __future__ import annotations

from pathlib import Path

_STILL = "still"
_MOVING = "moving"


class Standing:
    """A file beside the box. A server that is killed between two steps leaves "moving": then nobody knows."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "standing"

    def is_still(self) -> bool | None:
        """None where somebody was killed in the middle of changing it."""
        try:
            word = self._file.read_text()
        except FileNotFoundError:
            return False
        return True if word == _STILL else None

    def moving(self) -> None:
        self._file.write_text(_MOVING)

    def still(self) -> None:
        self._file.write_text(_STILL)

    def runs(self) -> None:
        self._file.unlink(missing_ok=True)
