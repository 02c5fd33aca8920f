"""The names in a folder that a guest has filled, as long as somebody is at work in it; together they have a bound."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from atoll.model import limits
from atoll.model.errors import TooLarge

_NAME_BYTES = 64  # what a name takes in memory beside its bytes


class Names:
    """Those of the folders that one walk is in at a moment, which lie inside each other."""

    def __init__(self, too_large: Callable[[str], TooLarge]) -> None:
        self._too_large = too_large
        self._held_bytes = 0

    @contextmanager
    def of(self, folder: int | None) -> Iterator[list[bytes]]:
        """In their order; of no folder there are none."""
        before = self._held_bytes
        try:
            yield [] if folder is None else sorted(self._listed(folder))
        finally:
            self._held_bytes = before

    def _listed(self, folder: int) -> Iterator[bytes]:
        with os.scandir(folder) as found:
            for entry in found:
                name = os.fsencode(entry.name)
                self._held_bytes += _NAME_BYTES + len(name)
                if self._held_bytes > limits.FOLDER_NAMES_BYTES_MAX:
                    raise self._too_large("too many files lie side by side in its folders")
                yield name
