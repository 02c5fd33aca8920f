"""The gVisor driver keeps the driver contract, in both of its postures, and with a gVisor that we do not know."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from atoll.model.errors import AtollError, Conflict, GuestFailed
from atoll.model.resources import Resources
from atoll.node import bundling, ending
from atoll.node.host import Host
from atoll.node.hostopen import host_open
from atoll.node.install.layout import Layout
from atoll.node.network import netns
from atoll.node.network.netns import Network
from atoll.node.network.plan import Pair
from atoll.node.runtime import sentrycall
from atoll.node.runtime.base import Box, Bundle
from atoll.testing import drivers
from atoll.wire import framing

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("strict", "known"), [(False, True), (True, True), (False, False)], ids=["default", "strict", "unknown"]
)
def test_runsc_keeps_the_contract(
    layout: Layout, data_dir: Path, tmp_path: Path, strict: bool, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not known:
        monkeypatch.setattr(sentrycall, "KNOWN_COMMIT", "another")
    host = asyncio.run(host_open(replace(layout, data=data_dir), strict=strict))
    done = asyncio.run(drivers.check_driver(host.driver, lambda: _bundle(host), tmp_path))
    host.cgroups.remove(host.names.cgroup_parent)
    assert len(done) == len(drivers.CHECKS)


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_nothing_that_is_restored_runs_before_it_was_seen(
    layout: Layout, data_dir: Path, tmp_path: Path, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not known:
        monkeypatch.setattr(sentrycall, "KNOWN_COMMIT", "another")
    host = asyncio.run(host_open(replace(layout, data=data_dir)))

    async def act() -> None:
        async with _bundle(host) as bundle:
            box = await host.driver.create(bundle)
            await box.start()
            assert await _speaks(box, drivers.ANSWER_S_MAX)
            await box.snapshot(tmp_path)
            await box.destroy()
            for refused in (False, True):
                async with _bundle(host, bundle.argv) as other:
                    await _restored_and_seen(await host.driver.create(other), tmp_path, refused=refused)

    asyncio.run(act())
    host.cgroups.remove(host.names.cgroup_parent)


async def _restored_and_seen(box: Box, image: Path, *, refused: bool) -> None:
    seen = _Seen(Conflict("it was changed") if refused else None)
    restoring = asyncio.ensure_future(box.restore(image, seen))
    try:
        await seen.asked.wait()
        assert not await _speaks(box, 0.3)
        seen.over.set()
        if refused:
            with pytest.raises(Conflict):
                await restoring
        else:
            await restoring
        assert await _speaks(box, 0.3 if refused else drivers.ANSWER_S_MAX) is not refused
    finally:
        await box.destroy()


async def _speaks(box: Box, within_s: float) -> bool:
    """Whether the guest says anything. That a connection is taken says less: the network's stack does so by itself."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + within_s
    while loop.time() < until_s:
        try:
            async with asyncio.timeout(until_s - loop.time()):
                with await box.connect_guest() as connection:
                    await loop.sock_sendall(connection, framing.encode(framing.CONTROL, b"{}"))
                    if await loop.sock_recv(connection, 1):
                        return True
        except (GuestFailed, OSError, TimeoutError):
            await asyncio.sleep(0.005)
    return False


class _Seen:
    """A look that takes as long as the test wants."""

    def __init__(self, error: AtollError | None) -> None:
        self._error = error
        self.asked = asyncio.Event()
        self.over = asyncio.Event()

    async def but(self, bulk: str) -> None:
        return

    async def whole(self) -> None:
        self.asked.set()
        await self.over.wait()
        if self._error is not None:
            raise self._error


@asynccontextmanager
async def _bundle(host: Host, argv: tuple[str, ...] | None = None) -> AsyncIterator[Bundle]:
    names = host.names
    entry = host.entry("contract", "base", Resources(), slot=secrets.token_hex(4), hostname="contract")
    await netns.pair_create(Pair.of(names, entry.slot))
    network = Network(Pair.of(names, entry.slot))
    root = host.pool.disk_create(entry.box_id, host.pool.root / "templates/base", 0)
    host.cgroups.create(names.cgroup(entry.box_id), entry.resources)
    names.box_folder(entry.box_id).mkdir(parents=True)
    bundle = bundling.bundle_of(host, entry, network, root)
    try:
        yield replace(bundle, argv=argv) if argv else bundle
    finally:
        network.close()
        await ending.demolish(host, entry)
