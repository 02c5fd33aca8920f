"""Opening a host: find the means of a node on this machine, and put them in order."""

from __future__ import annotations

import asyncio

import structlog

from atoll.model.errors import Unavailable
from atoll.node import cgroups, guestapp, volumes
from atoll.node.disks.pool import Pool
from atoll.node.egress.egress import Egress, EgressSettings
from atoll.node.host import Host
from atoll.node.images import Images
from atoll.node.install import swap
from atoll.node.install.layout import Layout
from atoll.node.journal import Journal
from atoll.node.names import HostNames
from atoll.node.runtime import registry

log = structlog.get_logger("atoll.node")


async def host_open(
    layout: Layout,
    *,
    names: HostNames | None = None,
    pool_size_bytes: int = 0,
    runtime: str = "runsc",
    strict: bool = False,
    egress: EgressSettings | None = None,
) -> Host:
    """The means of a node; `names` other than the data directory's are for who must not touch the server's things."""
    if names is None:
        await asyncio.to_thread(swap.restore, layout.data, lambda line: log.info("swap", told=line))
    names = names or HostNames.of(layout.data)
    for folder in (names.run, names.runsc_root, names.run / "boxes"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    driver = registry.load(runtime)(layout.runsc_path(), names.runsc_root, strict=strict)
    capabilities = await driver.probe()
    if capabilities.problem:
        raise Unavailable(f"the runtime cannot be used: {capabilities.problem}", code="runtime_unusable")
    pool = await asyncio.to_thread(Pool.open, layout.data, pool_size_bytes)
    await asyncio.to_thread(volumes.prepare, pool)
    return Host(
        names=names,
        journal=Journal(names.journal),
        pool=pool,
        cgroups=cgroups.detect(),
        driver=driver,
        guest_app=guestapp.publish(layout.data / "guest"),
        runtime_dir=layout.runtime_dir(),
        machine=layout.machine,
        runtime_version=capabilities.version,
        images=Images(names, pool),
        egress=Egress(egress, layout.data / "network"),
    )
