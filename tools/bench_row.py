"""A row of a measurement, and the arithmetic that all of them share."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One measurement: ours, what ran beside it, and what was promised."""

    name: str
    ours: float
    beside: float | None
    unit: str
    budget: str
    held: bool
    note: str = ""


def timed_ms(act: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    act()
    return (time.perf_counter() - started_s) * 1000


def p50(values: list[float]) -> float:
    return statistics.median(values)


def p95(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, round(len(values) * 0.95))]
