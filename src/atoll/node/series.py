"""What each sandbox uses over time: looked at from outside every few seconds, the last hour kept in memory.

Nothing here waits for the sandbox itself: a frozen one is counted too, and none can lie, but about the number of its
processes. Only its own kernel knows that one, and its guest says it on the line of its memory's guard.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence

import anyio.to_thread
import structlog

from atoll.model import limits
from atoll.model.errors import AtollError
from atoll.node.host import Host
from atoll.node.instance import Instance
from atoll.wire.node import SeriesPoint

log = structlog.get_logger("atoll.node")


class Series:
    """The samples of all sandboxes that live here."""

    def __init__(self, host: Host, instances: dict[str, Instance]) -> None:
        self._host = host
        self._instances = instances
        self._samples: dict[str, deque[SeriesPoint]] = {}

    def of(self, sandbox_id: str) -> Sequence[SeriesPoint]:
        return tuple(self._samples.get(sandbox_id, ()))

    async def run(self) -> None:
        while True:
            await asyncio.sleep(limits.SAMPLE_EVERY_S)
            instances = dict(self._instances)
            for gone in self._samples.keys() - instances.keys():
                del self._samples[gone]
            for sandbox_id, instance in instances.items():
                try:
                    sample = await anyio.to_thread.run_sync(self._look, instance)
                except (AtollError, OSError) as error:  # it may be going at this moment
                    log.debug("no sample", sandbox_id=sandbox_id, error=repr(error))
                    continue
                self._samples.setdefault(sandbox_id, deque(maxlen=limits.SAMPLES_MAX)).append(sample)

    def _look(self, instance: Instance) -> SeriesPoint:
        entry = instance.entry
        used = self._host.cgroups.usage(self._host.names.cgroup(entry.box_id))
        received, sent = parse_network(_network_table(entry.live.pid) if entry.live else "")
        return SeriesPoint(
            at_s=time.time(),  # noqa: TID251 - a moment for people to read, not a duration
            cpu_s=used.cpu_s,
            memory_bytes=used.memory_bytes,
            disk_bytes=self._host.pool.disk_usage_bytes(entry.box_id),
            received_bytes=received,
            sent_bytes=sent,
            processes=instance.memory.processes if instance.memory else None,
        )


def parse_network(table: str) -> tuple[int, int]:
    """Bytes that the sandbox received and sent, from the machine's view of its interfaces (/proc/PID/net/dev)."""
    received = sent = 0
    for line in table.splitlines():
        name, colon, rest = line.partition(":")
        fields = rest.split()
        if colon and name.strip() != "lo" and len(fields) >= 9:
            received += int(fields[0])
            sent += int(fields[8])
    return received, sent


def _network_table(pid: int) -> str:
    with open(f"/proc/{pid}/net/dev", encoding="ascii") as file:
        return file.read(64 * limits.KIB)
