"""What sandboxes use: CPU and memory from their control groups, space from their disks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from atoll.model import limits
from atoll.model.errors import AtollError
from atoll.model.usage import Sample
from atoll.node.host import Host
from atoll.node.journal import Entry


class Sampler:
    """Samples taken in a few threads of its own.

    A caller who does not wait any longer leaves a thread behind that a slow disk holds; the next ones stand in line
    for the others, and the server's own threads are for those who need no disk.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._threads = ThreadPoolExecutor(limits.SAMPLE_THREADS, "sample")

    async def samples(self, entries: Sequence[Entry]) -> dict[str, Sample]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, samples, self._host, entries)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def samples(host: Host, entries: Iterable[Entry]) -> dict[str, Sample]:
    """A sample of each sandbox; one that has just gone is left out. It reads files, so it runs in a thread."""
    found: dict[str, Sample] = {}
    for entry in entries:
        try:
            used = host.cgroups.usage(host.names.cgroup(entry.box_id))
            disk_bytes = host.pool.disk_usage_bytes(entry.box_id)
        except (AtollError, OSError):
            continue
        found[entry.sandbox_id] = Sample(
            max(0.0, used.cpu_s - entry.cpu_base_s),
            used.memory_bytes,
            disk_bytes,
            host.egress.bytes_up(entry.sandbox_id),
        )
    return found
