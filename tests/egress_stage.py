"""A gate on a stage: real namespaces, real sockets and the real proxy, without a sandbox around the client.

What runs `inside` is a program in the inner namespace: it sees the network exactly as a sandbox's own stack does, and
starts in milliseconds, so that many cases fit into a test run.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from atoll.model.policy import Policy, compile_policy
from atoll.model.secret import Grant
from atoll.node.egress.addresses import parse_networks
from atoll.node.egress.egress import Egress, EgressSettings
from atoll.node.network import netns
from atoll.node.network.plan import Pair
from atoll.wire.network import NetworkEvent, NetworkOrder, NetworkStatus
from tests import upstream
from tests.waiting import wait_until

BOX = "stage"


class Stage:
    def __init__(self, portal: BlockingPortal, egress: Egress, pair: Pair) -> None:
        self._portal = portal
        self.egress = egress
        self.pair = pair

    def allow(self, *rules: str, grants: tuple[Grant, ...] = (), **fields: Any) -> None:
        """Another policy, from now on."""
        order = NetworkOrder(compile_policy(Policy(allow=rules, **fields), {}), grants)
        self._portal.call(self.egress.set, BOX, order)

    def status(self) -> NetworkStatus:
        return self._portal.call(self.egress.status, BOX, 0)

    def last(self, kind: str = "connection") -> NetworkEvent:
        """The newest event, once nothing is open any more: a connection is one when it has ended."""
        wait_until(lambda: self.status().connections_open == 0, 5)
        return [event for event in self.status().events if event.kind == kind][-1]

    def answer(self, ask_id: str, allowed: bool) -> None:
        self._portal.call(self.egress.answer, BOX, ask_id, allowed)

    def start(self, *argv: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["ip", "netns", "exec", self.pair.inner, *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def inside(self, *argv: str) -> str:
        """What a program inside prints, errors too."""
        process = self.start(*argv)
        try:
            return process.communicate(timeout=30)[0]
        finally:
            process.kill()
            process.wait()

    def curl(self, url: str, *options: str) -> str:
        return self.inside("curl", "-sS", "--max-time", "5", *options, url)

    def python(self, code: str) -> str:
        return self.inside("/usr/bin/python3", "-c", code)


@contextmanager
def stage(folder: Path, servers: upstream.Upstream, name: str, closed: str = "") -> Iterator[Stage]:
    pair = Pair(name, f"atolltest-{name}-in", f"atolltest-{name}-out")
    resolv = Path("/etc/netns") / pair.inner
    resolv.mkdir(parents=True, exist_ok=True)
    (resolv / "resolv.conf").write_text("nameserver 10.0.0.1\noptions timeout:2 attempts:1\n")
    settings = EgressSettings(
        servers=((upstream.DNS, 53),),
        opened=(IPv4Network(upstream.NETWORK),),
        closed=parse_networks(closed),
        trusted_file=servers.ca_file,
    )
    try:
        with start_blocking_portal(backend_options={"use_uvloop": True}) as portal:
            with portal.wrap_async_context_manager(_Opened(settings, pair, folder)) as egress:
                yield Stage(portal, egress, pair)
    finally:
        shutil.rmtree(resolv)


class _Opened:
    """The gate's life, inside one task of the loop."""

    def __init__(self, settings: EgressSettings, pair: Pair, folder: Path) -> None:
        self._settings = settings
        self._pair = pair
        self._folder = folder

    async def __aenter__(self) -> Egress:
        await netns.pair_create(self._pair)
        self._network = netns.Network(self._pair)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        egress = Egress(self._settings, self._folder / "network")
        egress.start(self._tasks)
        await egress.open(BOX, self._network)
        return egress

    async def __aexit__(self, *_: object) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)
        self._network.close()
        await netns.pair_remove(self._pair)
