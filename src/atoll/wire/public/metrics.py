"""Bodies about what a sandbox uses: now, per process, and over time."""

from __future__ import annotations

from datetime import datetime

from atoll.wire.public.base import Answer


class OomEnded(Answer):
    """A process that the memory guard has ended, and how much it had."""

    at: datetime
    pid: int
    name: str
    memory_bytes: int


class MetricsView(Answer):
    """What a sandbox uses now: as its own kernel counts, but CPU time and disk, which are as the machine counts."""

    at: datetime
    cpu_count: int
    cpu_s: float
    load: list[float]
    memory_total_bytes: int
    memory_available_bytes: int
    disk_total_bytes: int
    disk_available_bytes: int
    processes: int
    threads: int
    network_received_bytes: int
    network_sent_bytes: int
    oom_kills: int
    oom_ended: list[OomEnded] = []
    """The last of them, oldest first."""


class ProcessUsage(Answer):
    pid: int
    parent: int
    name: str
    command: str
    state: str
    uid: int | None
    cpu_s: float
    memory_bytes: int
    threads: int


class ProcessUsageList(Answer):
    items: list[ProcessUsage]


class MetricsSample(Answer):
    """One moment, as the machine counts: of the sandbox and the runtime around it.

    `processes` is what the kernel inside said within the seconds before; null in the first seconds of a sandbox.
    """

    at: datetime
    cpu_s: float
    memory_bytes: int
    disk_bytes: int
    processes: int | None
    network_received_bytes: int
    network_sent_bytes: int


class MetricsHistory(Answer):
    """Oldest first; at most the last hour."""

    every_s: float
    items: list[MetricsSample]
