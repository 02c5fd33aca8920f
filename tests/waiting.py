"""Waiting for something to become true, with a bound."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], object], within_s: float, what: str | Callable[[], str] = "") -> float:
    """Seconds until it held; fails after `within_s`, with what is said, or is asked then."""
    started_s = time.monotonic()
    while not holds():
        if time.monotonic() - started_s > within_s:
            raise AssertionError(f"not within {within_s} s: {what() if callable(what) else what or holds}")
        time.sleep(0.02)
    return time.monotonic() - started_s
