# Generated from src/atoll/client/_async/metrics.py by tools/unasync.py: change that file, not this one.
"""What a sandbox uses: now, per process, and over the last hour."""

from __future__ import annotations

from atoll.client._sync.transport import Transport
from atoll.wire.public import MetricsHistory, MetricsView, ProcessUsage, ProcessUsageList

Usages = list[ProcessUsage]


class Metrics:
    """`sb.metrics`: CPU, memory, disk, processes and network."""

    def __init__(self, transport: Transport, sandbox_path: str) -> None:
        self._transport = transport
        self._path = f"{sandbox_path}/metrics"

    def now(self) -> MetricsView:
        """What it uses now. CPU and network count from its start: two looks and a difference give a rate.

        Example:
            print((sb.metrics.now()).memory_available_bytes)
        """
        return self._transport.call("GET", self._path, MetricsView)

    def processes(self) -> Usages:
        """What each of its processes uses now.

        Example:
            for p in sb.metrics.processes():
                print(p.pid, p.name, p.memory_bytes)
        """
        return (self._transport.call("GET", f"{self._path}/processes", ProcessUsageList)).items

    def history(self) -> MetricsHistory:
        """What it used over the last hour, as the machine counts, oldest first.

        Example:
            for s in (sb.metrics.history()).items:
                print(s.at, s.memory_bytes)
        """
        return self._transport.call("GET", f"{self._path}/history", MetricsHistory)
