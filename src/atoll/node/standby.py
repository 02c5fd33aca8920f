"""Standby: a sandbox that stands still where it is, and whose memory may go to swap.

Standing still takes milliseconds and so does waking, as long as the memory is still there. So it is left there for a
while; then, on a host that has swap, the kernel is asked to take it out. What is in swap comes back page by page when
it is touched.
"""

from __future__ import annotations

import asyncio

from atoll.model import limits
from atoll.node import admission
from atoll.node.host import Host
from atoll.node.instance import Instance


async def reclaim_later(host: Host, instance: Instance) -> None:
    """After a while of standing still, let its memory go to swap, if there is any."""
    await asyncio.sleep(limits.RECLAIM_AFTER_S)
    if instance.frozen and not instance.ending and admission.host_swap_bytes():
        await asyncio.to_thread(host.cgroups.reclaim, host.names.cgroup(instance.entry.box_id))
