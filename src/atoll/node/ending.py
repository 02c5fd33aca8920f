"""How a box ends: what it was that ended it, and how every trace of it is removed."""

from __future__ import annotations

import asyncio
import contextlib
import shutil

from atoll.model import limits
from atoll.model.errors import AtollError, GuestFailed
from atoll.model.lifecycle import EndReason
from atoll.node.host import Host
from atoll.node.journal import Entry
from atoll.node.network import netns
from atoll.node.network.plan import Pair


def cause_of(host: Host, entry: Entry) -> tuple[EndReason, str]:
    """Why a runtime that nobody told to end is gone, as far as its limits say."""
    cgroup = host.names.cgroup(entry.box_id)
    if host.cgroups.oom_kills(cgroup):
        return EndReason.OUT_OF_MEMORY, f"it needed more than {entry.resources.memory_bytes} bytes of memory"
    if host.cgroups.pids_refused(cgroup):
        return EndReason.PIDS, f"it needed more than {entry.resources.pids} processes"
    if _disk_full(host, entry):
        return EndReason.DISK, "its runtime ended when there was no space left on its disk"
    return EndReason.RUNTIME_DIED, "its runtime ended unexpectedly"


def _disk_full(host: Host, entry: Entry) -> bool:
    with contextlib.suppress(AtollError):
        used_bytes = host.pool.disk_usage_bytes(entry.box_id)
        limit_bytes = entry.resources.disk_bytes
        return used_bytes + limits.DISK_FULL_BYTES > limit_bytes or host.pool.free_bytes() < limits.DISK_FULL_BYTES
    return False


def not_ready(exited: bool, said: str) -> AtollError:
    """What is told when a sandbox does not come up."""
    what = "ended while it started" if exited else f"did not answer within {limits.BOOT_S_MAX:g} s"
    return GuestFailed(f"the sandbox {what}", code="start_failed", detail=said)


async def demolish(host: Host, entry: Entry) -> None:
    """Remove every trace of a box, in the order in which one thing holds another; idempotent. The entry goes last."""
    folder = host.names.box_folder(entry.box_id)
    host.cgroups.give_way(host.names.cgroup(entry.box_id), False)  # a server that was killed may have left it so
    if folder.exists():
        await host.driver.discard(entry.box_id, folder)
    await asyncio.to_thread(host.cgroups.remove, host.names.cgroup(entry.box_id))
    await netns.pair_remove(Pair.of(host.names, entry.slot))
    await asyncio.to_thread(host.pool.disk_delete, entry.box_id)
    await asyncio.to_thread(host.pool.disk_aside_delete, entry.box_id)
    await asyncio.to_thread(shutil.rmtree, folder, True)
    host.journal.remove(entry.box_id)
