"""The rest of an identity: done once, after its answer, and before any operation that could see that it is missing."""

from __future__ import annotations

import threading
from collections.abc import Callable

Work = Callable[[], None]


class Settling:
    def __init__(self) -> None:
        self._lock = threading.Lock()

    def begin(self, rest: Work, answer: Work) -> None:
        """Answer, then do the rest; whoever comes in between finds it done."""
        with self._lock:
            answer()
            rest()

    def finish(self) -> None:
        """When this returns, nothing is left to do."""
        with self._lock:
            return
