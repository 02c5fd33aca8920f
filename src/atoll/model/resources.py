"""What one sandbox may use: CPU, memory, disk, processes; and the arithmetic of admitting it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from atoll.model import limits
from atoll.model.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Resources:
    """The limits of one sandbox. CPU is in cores and may be a fraction."""

    cpu: float = 2.0
    memory_bytes: int = limits.GIB
    disk_bytes: int = 10 * limits.GIB
    pids: int = 1024

    def checked(self) -> Resources:
        """Itself, if every value lies within its bounds."""
        if not math.isfinite(self.cpu):
            raise InvalidArgument("cpu must be a number", code="invalid_resources")
        _within("cpu", self.cpu, limits.CPU_MIN, limits.CPU_MAX)
        _within("memory_bytes", self.memory_bytes, limits.MEMORY_BYTES_MIN, limits.MEMORY_BYTES_MAX)
        _within("disk_bytes", self.disk_bytes, limits.DISK_BYTES_MIN, limits.DISK_BYTES_MAX)
        _within("pids", self.pids, limits.PIDS_MIN, limits.PIDS_MAX)
        return self


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InvalidArgument(
            f"{name} is {value}, which is not between {low} and {high}",
            code="invalid_resources",
            hint=f"Choose {name} between {low} and {high}, or leave it out for the default.",
        )
