"""How far a sandbox is from the end of its memory: the arithmetic of who watches it, inside and outside."""

from __future__ import annotations

from atoll.model import limits


def reserve_bytes(total_bytes: int) -> int:
    """What must stay free; below it the hungriest process is ended."""
    return max(limits.MEMORY_GUARD_BYTES_MIN, int(total_bytes * limits.MEMORY_GUARD_FRACTION))


def is_near(used_bytes: int, total_bytes: int) -> bool:
    """Whether so little is left that the guard inside had better see to it itself."""
    return total_bytes - used_bytes < 2 * reserve_bytes(total_bytes)
