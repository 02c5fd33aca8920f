"""Whether one more sandbox fits on this machine: pure arithmetic over what is promised and what is free.

Memory is promised beyond what there is, because an idle sandbox uses a tenth of its limit; how far is the operator's
choice. What really is free now has the last word: a promise is worth nothing on a host that is out of memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atoll.model import limits
from atoll.model.errors import AtollError, InvalidArgument, Unavailable
from atoll.model.resources import Resources


@dataclass(frozen=True, slots=True)
class Memory:
    """The host's memory, in bytes."""

    total: int
    available: int


def refusal(
    wanted: Resources, *, memory: Memory, promised_bytes: int, sandboxes: int, overcommit: float, waits: bool
) -> AtollError | None:
    """Why this sandbox cannot be admitted now, or None. Of one that `waits` in the pool the start is paid for."""
    need_bytes = promise_bytes(wanted)
    if need_bytes > memory.total:
        return InvalidArgument(
            f"memory_bytes is {wanted.memory_bytes}, more than this machine has",
            code="exceeds_node",
            hint=f"This machine has {memory.total} bytes, of which {limits.RUNTIME_MEMORY_BYTES} go to the runtime.",
        )
    if sandboxes >= limits.SANDBOXES_PER_NODE_MAX:
        return Unavailable("this machine runs as many sandboxes as it may", code="no_capacity", hint=_LATER)
    if promised_bytes + need_bytes > memory.total * overcommit:
        return Unavailable("the memory of this machine is promised to other sandboxes", code="no_memory", hint=_LATER)
    start_bytes = 0 if waits else min(need_bytes, limits.ADMISSION_FREE_BYTES)
    if memory.available - limits.MEMORY_RESERVE_BYTES < start_bytes:
        return Unavailable("there is no memory for another sandbox", code="no_memory", hint=_LATER)
    return None


_LATER = "Try again when another sandbox has ended, or ask for less memory."


def promise_bytes(resources: Resources) -> int:
    """The most that one sandbox can take of the host: its own memory, its runtime's, and what a hog may burst to."""
    return resources.memory_bytes + limits.RUNTIME_MEMORY_BYTES + limits.MEMORY_BURST_BYTES


def fits_beside(image_bytes: int, memory: Memory) -> bool:
    """Whether an image of a sandbox's memory may pass through the host's own memory."""
    free_bytes = memory.available - limits.MEMORY_RESERVE_BYTES
    return image_bytes <= min(free_bytes, limits.OUTFLOW_MEMORY_BYTES_MAX)


def host_memory() -> Memory:
    """The host's memory now."""
    total, available = _meminfo("MemTotal", "MemAvailable")
    return Memory(total, available)


def host_swap_bytes() -> int:
    return _meminfo("SwapTotal")[0]


def _meminfo(*names: str) -> list[int]:
    """Some of what the kernel says of the host's memory, in bytes; each create asks, so only these are read."""
    text = Path("/proc/meminfo").read_text()
    begins = (text.index(f"{name}:") + len(name) + 1 for name in names)
    return [int(text[begin : text.index("kB", begin)]) * limits.KIB for begin in begins]
