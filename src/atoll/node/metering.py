"""What sandboxes use: CPU and memory from their control groups, space from their disks."""

from __future__ import annotations

from collections.abc import Iterable

from atoll.model.errors import AtollError
from atoll.model.usage import Sample
from atoll.node.host import Host
from atoll.node.journal import Entry


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
