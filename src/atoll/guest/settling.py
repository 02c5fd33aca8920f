"""The rest of an identity: done once, after its answer, and before any operation that could see that it is missing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

Work = Callable[[], None]


class Settling:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rest: Work | None = None

    def begin(self, rest: Work, answer: Work, after_s: float) -> None:
        """Answer, then do the rest, at once or after a while; whoever comes in between finds it done."""
        with self._lock:
            self._rest = rest
            answer()
            if not after_s:
                self._do()
        if after_s:
            time.sleep(after_s)
            self.finish()

    def finish(self) -> None:
        """When this returns, nothing is left to do."""
        with self._lock:
            self._do()

    def _do(self) -> None:
        rest, self._rest = self._rest, None
        if rest is not None:
            rest()
