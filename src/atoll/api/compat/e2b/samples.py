"""What a sandbox uses, as E2B shows it: the series that the node keeps, and a look at the guest while that is short."""

from __future__ import annotations

from typing import Any

import anyio

from atoll.api.compat.e2b import shapes
from atoll.api.compat.e2b.ask import Ask
from atoll.api.compat.e2b.shapes import Use
from atoll.model import limits
from atoll.model.sandbox import Sandbox


async def series(ask: Ask, sandbox: Sandbox) -> list[Use]:
    """The last hour of a sandbox, oldest first; of a new one what it uses now."""
    points = await ask.control.sandbox_series(ask.principal, sandbox.id)
    return shapes.uses_of(points) or [await now(ask, sandbox)]


async def now(ask: Ask, sandbox: Sandbox) -> Use:
    """Two looks at the guest's counters, a moment apart."""
    inside = await ask.control.guest(ask.principal, sandbox.id)
    before = await inside.call("metrics", {})
    await anyio.sleep(limits.E2B_SAMPLE_S)
    after = await inside.call("metrics", {})
    points = await ask.control.sandbox_series(ask.principal, sandbox.id)
    return use_of(before, after, points[-1].disk_bytes if points else 0)


def use_of(before: dict[str, Any], after: dict[str, Any], disk_bytes: int) -> Use:
    """What two answers of a guest say; what is not a number in them counts as nothing."""
    passed_s = _number(after, "at") - _number(before, "at")
    cpu_s = _number(after, "processes_cpu_s") - _number(before, "processes_cpu_s")
    used = max(0, int(_number(after, "memory_total_bytes") - _number(after, "memory_available_bytes")))
    return Use(_number(after, "at"), shapes.percent(cpu_s, passed_s), used, disk_bytes)


def _number(words: dict[str, Any], name: str) -> float:
    value = words.get(name)
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e15 else 0.0
