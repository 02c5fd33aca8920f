"""The other side of a measurement: runsc alone, with the same disk, network, limits and guest, and nothing of ours."""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from atoll import Sandbox
from atoll.model.resources import Resources
from atoll.node import bundling, ending, spawn
from atoll.node.guestlink import GuestLink
from atoll.node.host import Host
from atoll.node.hostopen import host_open
from atoll.node.images import Boot, Image, Images
from atoll.node.install.layout import Layout
from atoll.node.names import HostNames
from atoll.node.network import netns
from atoll.node.network.netns import Network
from atoll.node.network.plan import Pair
from atoll.node.runtime import oci
from atoll.node.runtime.base import Bundle
from atoll.wire import guest as wire


@dataclass(frozen=True)
class Revived:
    """An image of the server that lives in a bare box: the same disk, processes and memory."""

    bare: Bare
    bundle: Bundle
    link: GuestLink
    restore_ms: float

    def code_ms(self, code: str) -> float:
        """A piece of code in its Python, until its end."""
        started_s = time.perf_counter()
        asyncio.run(_code_run(self.link, code))
        return (time.perf_counter() - started_s) * 1000

    def checkpoint_ms(self) -> float:
        """`runsc checkpoint` as it is meant: afterwards the box is gone."""
        return self.bare.checkpoint_ms(self.bundle)

    def checkpoint_running_ms(self) -> float:
        """The same, and it goes on."""
        return self.bare.checkpoint_ms(self.bundle, "--leave-running")

    def file(self, path: str) -> Path:
        """A file of its disk."""
        return self.bundle.root / path


class Bare:
    """runsc by hand, on a data directory beside the server's."""

    def __init__(self, host: Host, server_names: HostNames, runsc: Path) -> None:
        self._host = host
        self._server_names = server_names
        self._runsc = runsc
        driver: Any = host.driver
        self._flags = ["--root", str(host.names.runsc_root), *driver._flags]

    @classmethod
    @contextmanager
    def open(cls, layout: Layout, server_data: Path) -> Iterator[Bare]:
        names = HostNames.of(server_data / "bare")
        host = asyncio.run(host_open(replace(layout, data=server_data), names=names))
        try:
            yield cls(host, HostNames.of(server_data), layout.runsc_path())
        finally:
            host.cgroups.remove(names.cgroup_parent)

    def create_ms(self) -> float:
        """`runsc create`, `runsc start`, and the guest's first answer; all else was made before the clock started."""
        with self._bundle() as (bundle, link):
            started_s = time.perf_counter()
            self._run("create", "--bundle", str(bundle.folder), bundle.box_id)
            self._run("start", bundle.box_id)
            asyncio.run(_first_answer(link))
            return (time.perf_counter() - started_s) * 1000

    def restore_ms(self, image: Image, images: Images) -> float:
        with self.revived(image, images) as revived:
            return revived.restore_ms

    @contextmanager
    def revived(self, image: Image, images: Images) -> Iterator[Revived]:
        """`runsc restore` of an image of a server into a shell that is there already, and its first answer."""
        disk = images.disk_path(image.id)
        with self._bundle(disk=disk, boot=image.boot) as (shell, link):
            link.token = image.token
            self._run("create", "--bundle", str(shell.folder), shell.box_id)
            started_s = time.perf_counter()
            memory = str(images.memory_path(image.id))
            self._run("restore", "--bundle", str(shell.folder), "--image-path", memory, "--detach", shell.box_id)
            asyncio.run(_first_answer(link))
            restore_ms = (time.perf_counter() - started_s) * 1000
            yield Revived(self, shell, link, restore_ms)

    def checkpoint_ms(self, bundle: Bundle, *flags: str) -> float:
        """`runsc checkpoint` into a new folder beside the server's images."""
        with tempfile.TemporaryDirectory(dir=self._host.names.data.parent) as folder:
            started_s = time.perf_counter()
            self._run("checkpoint", *flags, "--image-path", folder, bundle.box_id)
            return (time.perf_counter() - started_s) * 1000

    @contextmanager
    def runner(self, argv: tuple[str, ...]) -> Iterator[Callable[[], str]]:
        """`runsc run` of one program, again and again in the same bundle; what it prints."""
        with self._bundle(lambda bundle: replace(bundle, argv=argv)) as (bundle, _):

            def run() -> str:
                command = ("run", "--bundle", str(bundle.folder), f"{bundle.box_id}-{secrets.token_hex(4)}")
                argv = [str(self._runsc), *self._flags, *command]
                return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout

            yield run

    def sleep_memory_mib(self) -> float:
        with self._bundle(lambda bundle: replace(bundle, argv=("/bin/sleep", "1000"))) as (bundle, _):
            self._run("create", "--bundle", str(bundle.folder), bundle.box_id)
            self._run("start", bundle.box_id)
            time.sleep(1)
            return _private_mib(self._host.cgroups.pids(bundle.cgroup))

    def memory_mib(self, box: str) -> float:
        """Private memory of all processes of one of the server's boxes."""
        return _private_mib(self._host.cgroups.pids(self._server_names.cgroup(box)))

    def resident_mib(self, box: str) -> float:
        """What one of the server's boxes has in memory, of its programs too, which are shared memory of its sentry."""
        return self._host.cgroups.usage(self._server_names.cgroup(box)).memory_bytes / 2**20

    def reclaim(self, box: str) -> None:
        """What the server does after a while of standby, now."""
        self._host.cgroups.reclaim(self._server_names.cgroup(box))

    def exec_true(self, box: str) -> None:
        spawn.run([self._runsc, "--root", self._server_names.runsc_root, "exec", box, "/bin/true"])

    @contextmanager
    def network(self, box: str) -> Iterator[tuple[Network, str]]:
        """The outer network of one of the server's boxes, and the token of its guest."""
        entry = json.loads((self._server_names.journal / f"{box}.json").read_text())
        network = Network(Pair.of(self._server_names, entry["slot"]))
        try:
            yield network, entry["token"]
        finally:
            network.close()

    def plain_tcp_ms(self, sandbox: Sandbox, box: str, data: bytes) -> float:
        """Bytes into a file inside by netcat: no protocol, no answer but the end of the connection."""
        process = sandbox.commands.start("nc -l -p 5001 > plain")
        try:
            with self.network(box) as (network, _):
                connection = asyncio.run(_dial_when_open(network, 5001))
                connection.setblocking(True)
                started_s = time.perf_counter()
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)
                return (time.perf_counter() - started_s) * 1000
        finally:
            process.wait()

    @contextmanager
    def _bundle(
        self,
        change: Callable[[Bundle], Bundle] = lambda bundle: bundle,
        disk: Path | None = None,
        boot: Boot | None = None,
    ) -> Iterator[tuple[Bundle, GuestLink]]:
        host = self._host
        entry = host.entry("bare", "base", Resources(), slot=secrets.token_hex(4), hostname="bare", boot=boot)
        pair = Pair.of(host.names, entry.slot)
        asyncio.run(netns.pair_create(pair))
        network = Network(pair)
        source = disk or host.pool.root / "templates/base"
        root = host.pool.disk_create(entry.box_id, source, entry.resources.disk_bytes)
        host.cgroups.create(host.names.cgroup(entry.box_id), entry.resources)
        folder = host.names.box_folder(entry.box_id)
        folder.mkdir(parents=True)
        bundle = change(bundling.bundle_of(host, entry, network, root))
        (folder / "config.json").write_text(json.dumps(oci.config(bundle)))
        link = GuestLink(lambda: network.dial(bundling.GUEST_PORT), entry.token)
        try:
            yield bundle, link
        finally:
            self._run("delete", "--force", bundle.box_id)
            network.close()
            asyncio.run(ending.demolish(host, entry))
            shutil.rmtree(folder, ignore_errors=True)

    def _run(self, *command: str) -> None:
        spawn.run([self._runsc, *self._flags, *command])


async def _first_answer(link: GuestLink) -> None:
    while True:
        try:
            await link.call("ping")
        except Exception:
            await asyncio.sleep(0.001)
        else:
            return


async def _code_run(link: GuestLink, code: str) -> None:
    async with link.stream("contexts.run", {"context": "python", "code": code}) as stream:
        async for message in stream:
            if isinstance(message, wire.End):
                assert message.value["status"] == "ok", message.value
                return


async def _dial_when_open(network: Network, port: int) -> socket.socket:
    while True:
        try:
            return await network.dial(port)
        except Exception:
            await asyncio.sleep(0.01)


def _private_mib(pids: list[int]) -> float:
    total_kib = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(("Private_Clean:", "Private_Dirty:")):
                total_kib += int(line.split()[1])
    return total_kib / 1024
