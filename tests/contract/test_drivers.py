"""The gVisor driver keeps the driver contract, in both of its postures."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from atoll.model import ids
from atoll.model.resources import Resources
from atoll.node import cgroups, guestapp, instance
from atoll.node.disks.pool import Pool
from atoll.node.host import Host
from atoll.node.install.layout import Layout
from atoll.node.journal import Entry, Journal
from atoll.node.names import HostNames
from atoll.node.network import netns
from atoll.node.network.netns import Network
from atoll.node.network.plan import Pair
from atoll.node.runtime import registry
from atoll.node.runtime.base import Bundle
from atoll.testing import drivers

pytestmark = pytest.mark.real


@pytest.mark.parametrize("strict", [False, True], ids=["default", "strict"])
def test_runsc_keeps_the_contract(layout: Layout, data_dir: Path, tmp_path: Path, strict: bool) -> None:
    names = HostNames.of(data_dir)
    names.runsc_root.mkdir(parents=True)
    driver = registry.load("runsc")(layout.runsc_path(), names.runsc_root, strict=strict)
    host = Host(
        names=names,
        journal=Journal(names.journal),
        pool=Pool.open(data_dir),
        cgroups=cgroups.detect(),
        driver=driver,
        guest_app=guestapp.publish(data_dir / "guest"),
        runtime_dir=layout.runtime_dir(),
        machine=layout.machine,
    )

    @asynccontextmanager
    async def make_bundle() -> AsyncIterator[Bundle]:
        entry = Entry(
            box_id=ids.mint(ids.BOX, time.time_ns() // 1_000_000, secrets.token_bytes(16)),
            sandbox_id="contract",
            slot=secrets.token_hex(4),
            template="base",
            resources=Resources(),
            hostname="contract",
            token="token",
            guest_app=str(host.guest_app),
            runtime_dir=str(host.runtime_dir),
        )
        await netns.pair_create(Pair.of(names, entry.slot))
        network = Network(Pair.of(names, entry.slot))
        root = host.pool.disk_create(entry.box_id, host.pool.root / "templates/base", 0)
        host.cgroups.create(names.cgroup(entry.box_id), entry.resources)
        names.box_folder(entry.box_id).mkdir(parents=True)
        try:
            yield instance.bundle_of(host, entry, network, root)
        finally:
            network.close()
            await instance.demolish(host, entry)

    done = asyncio.run(drivers.check_driver(driver, make_bundle, tmp_path))
    host.cgroups.remove(names.cgroup_parent)
    assert len(done) == len(drivers.CHECKS)
