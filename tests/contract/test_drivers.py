"""The gVisor driver keeps the driver contract, in both of its postures, and with a gVisor that we do not know."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from atoll.model.resources import Resources
from atoll.node import bundling, instance
from atoll.node.hostopen import host_open
from atoll.node.install.layout import Layout
from atoll.node.network import netns
from atoll.node.network.netns import Network
from atoll.node.network.plan import Pair
from atoll.node.runtime import sentrycall
from atoll.node.runtime.base import Bundle
from atoll.testing import drivers

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("strict", "known"), [(False, True), (True, True), (False, False)], ids=["default", "strict", "unknown"]
)
def test_runsc_keeps_the_contract(
    layout: Layout, data_dir: Path, tmp_path: Path, strict: bool, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not known:
        monkeypatch.setattr(sentrycall, "KNOWN_COMMIT", "another")
    here = replace(layout, data=data_dir)
    host = asyncio.run(host_open(here, strict=strict))
    names = host.names

    @asynccontextmanager
    async def make_bundle() -> AsyncIterator[Bundle]:
        entry = host.entry("contract", "base", Resources(), slot=secrets.token_hex(4), hostname="contract")
        await netns.pair_create(Pair.of(names, entry.slot))
        network = Network(Pair.of(names, entry.slot))
        root = host.pool.disk_create(entry.box_id, host.pool.root / "templates/base", 0)
        host.cgroups.create(names.cgroup(entry.box_id), entry.resources)
        names.box_folder(entry.box_id).mkdir(parents=True)
        try:
            yield bundling.bundle_of(host, entry, network, root)
        finally:
            network.close()
            await instance.demolish(host, entry)

    done = asyncio.run(drivers.check_driver(host.driver, make_bundle, tmp_path))
    host.cgroups.remove(names.cgroup_parent)
    assert len(done) == len(drivers.CHECKS)
