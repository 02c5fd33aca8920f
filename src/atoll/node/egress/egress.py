"""Egress of all sandboxes of a node: a gate for each, whose sockets are open in the sandbox's outer namespace.

A gate exists from the moment its sandbox has an owner until it is gone, and begins with rules that let nothing through.
When the server is not there, its sockets are not there either: what a sandbox sends then ends in its own namespaces.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import structlog
from anyio.abc import TaskGroup

from atoll.model import limits
from atoll.model.errors import InvalidArgument
from atoll.model.policy import Verdict, request_refusal
from atoll.model.secret import env_of
from atoll.node.egress.addresses import Network as AddressRange
from atoll.node.egress.buffer import Buffer, Waiting
from atoll.node.egress.dns_server import DNS_PORT, DnsServer
from atoll.node.egress.gate import Gate
from atoll.node.egress.judge import Bench
from atoll.node.egress.keepsakes import Keepsakes
from atoll.node.egress.masking import covered_values
from atoll.node.egress.places import Places
from atoll.node.egress.proxy import Proxy
from atoll.node.egress.reports import Reports
from atoll.node.egress.resolver import Resolver, Server
from atoll.node.network import plan
from atoll.node.network.netns import Network
from atoll.wire.network import Ask, NetworkEvent, NetworkOrder, NetworkStatus, Tested, Trial

log = structlog.get_logger("atoll.egress")


@dataclass(frozen=True, slots=True)
class EgressSettings:
    """What an operator chooses: who knows names, which addresses are open or closed besides, whom else to trust."""

    servers: tuple[Server, ...] = ()
    opened: tuple[AddressRange, ...] = ()
    closed: tuple[AddressRange, ...] = ()
    trusted_file: Path | None = None


class _Post:
    """A gate and what keeps it open."""

    def __init__(self, gate: Gate, network: Network) -> None:
        self.gate = gate
        self.network = network
        self.scope = anyio.CancelScope()
        self.closed = anyio.Event()


class Egress:
    """The gates of a node. Orders are kept apart from gates: a sandbox that sleeps has the one and not the other."""

    def __init__(self, settings: EgressSettings | None = None, folder: Path | None = None) -> None:
        """In the folder is what a sandbox's network keeps beyond this process; without one it keeps nothing."""
        settings = settings or EgressSettings()
        self._bench = Bench(Resolver(settings.servers), settings.opened, settings.closed)
        self._trusted_file = settings.trusted_file
        self._trusted: dict[bool, ssl.SSLContext] = {}
        self._buffer = memoryview(bytearray(limits.EGRESS_CHUNK_BYTES))
        self._waiting = Waiting()
        self._places = Places()
        self._tasks: TaskGroup | None = None
        self._orders: dict[str, NetworkOrder] = {}
        self._values: dict[str, tuple[bytes, ...]] = {}
        self._posts: dict[str, _Post] = {}
        self._keepsakes = Keepsakes(folder)
        self._reports = Reports()
        self._reported = anyio.Event()

    def start(self, tasks: TaskGroup) -> None:
        """Gates opened from now on live in this group; before, none is opened, and nothing gets out."""
        self._tasks = tasks

    async def open(self, sandbox_id: str, network: Network) -> None:
        """A gate for a sandbox, under its order. One that stands in another network goes; one in this stays."""
        post = self._posts.get(sandbox_id)
        if post is not None and post.network is network:
            return
        await self.close(sandbox_id)
        if self._tasks is None or not sandbox_id:
            return
        gate = Gate(sandbox_id, self._report, self._keepsakes.traffic(sandbox_id), self._places)
        gate.apply(self.order(sandbox_id))
        post = self._posts[sandbox_id] = _Post(gate, network)
        await self._tasks.start(self._run, post)

    async def _run(self, post: _Post, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        gate = post.gate
        names = DnsServer(gate, self._bench)
        authority = functools.partial(self._keepsakes.authority, gate.sandbox_id)
        proxy = Proxy(gate, self._bench, names, authority, self._trust, Buffer(self._buffer, self._waiting))
        try:
            with post.scope:
                network = post.network
                with network.listen_tcp(plan.PROXY_PORT) as tcp, network.listen_udp(DNS_PORT) as udp:
                    task_status.started()
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(_again, proxy.run, tcp)
                        tasks.start_soon(_again, names.run, udp)
        finally:
            post.closed.set()

    async def close(self, sandbox_id: str, network: Network | None = None) -> None:
        """Shut a gate and cut what is open; idempotent. With a network, only if the gate stands in that one."""
        post = self._posts.get(sandbox_id)
        if post is None or (network is not None and post.network is not network):
            return
        del self._posts[sandbox_id]
        post.scope.cancel()
        with anyio.CancelScope(shield=True):
            await post.closed.wait()
        post.gate.settle(ended=True)

    def set(self, sandbox_id: str, order: NetworkOrder) -> None:
        """What holds for a sandbox from now on, also if it sleeps or is still to be made."""
        self._orders[sandbox_id] = order
        now = [grant.value.reveal().encode("ascii") for grant in order.grants]
        self._values[sandbox_id] = covered_values(now, self.values(sandbox_id))
        post = self._posts.get(sandbox_id)
        if post is not None:
            post.gate.apply(order)

    def forget(self, sandbox_id: str) -> None:
        self._orders.pop(sandbox_id, None)
        self._values.pop(sandbox_id, None)
        self._keepsakes.forget(sandbox_id)

    def sweep(self, living: frozenset[str]) -> None:
        """Forget all about sandboxes that are none of these."""
        self._keepsakes.sweep(living)

    def order(self, sandbox_id: str) -> NetworkOrder:
        """What holds for a sandbox now; nothing is allowed for one that nobody has said anything about."""
        return self._orders.get(sandbox_id, NetworkOrder())

    def bytes_up(self, sandbox_id: str) -> int:
        """What a sandbox has sent out since it was made."""
        return self._keepsakes.bytes_up(sandbox_id)

    def moved_at_s(self, sandbox_id: str) -> float:
        """When bytes of a sandbox last passed its gate, by the monotonic clock."""
        post = self._posts.get(sandbox_id)
        return post.gate.traffic.moved_at_s if post else 0.0

    def inside(self, sandbox_id: str) -> dict[str, Any] | None:
        """What the inside of a sandbox needs to know: whom to trust, and its placeholders. None if nothing."""
        order = self.order(sandbox_id)
        post = self._posts.get(sandbox_id)
        if post is None or not order.looks_inside:
            return None
        inside = [grant for grant in order.grants if grant.inside]
        env = {env_of(grant.secret): grant.placeholder for grant in inside}
        files = {grant.secret.path: grant.placeholder for grant in inside if grant.secret.path}
        return {"ca": self._keepsakes.authority(sandbox_id).certificate_pem, "env": env, "files": files}

    def values(self, sandbox_id: str) -> tuple[bytes, ...]:
        """The values that must not be seen in the output of a sandbox's programs, also those that it had before.

        As long as they have not changed, they are the same object.
        """
        return self._values.get(sandbox_id, ())

    def status(self, sandbox_id: str, after: int) -> NetworkStatus:
        status, post = self._gate(sandbox_id).status(after), self._posts.get(sandbox_id)
        return replace(status, packets_dropped=post.network.packets_dropped()) if post else status

    def answer(self, sandbox_id: str, ask_id: str, allowed: bool) -> Ask:
        return self._gate(sandbox_id).answer(ask_id, allowed)

    async def test(self, sandbox_id: str, trial: Trial) -> Tested:
        """What would happen to a connection, and to a request on it."""
        gate = self._gate(sandbox_id)
        host, port = trial.host, trial.port
        if not 1 <= port <= 65535:
            raise InvalidArgument("a port is between 1 and 65535", code="invalid_port")
        early = gate.refuse_early()
        verdict, addresses = (Verdict(False, early), ()) if early else await self._bench.test(gate, host, port)
        rules = gate.order.rules.http_rules(host)
        if verdict.allowed and trial.path and request_refusal(rules, trial.method, trial.path):
            verdict = Verdict(False, "http_rule", rules[0].host)
        grants = [] if trial.plain else gate.grants_for(host, port)
        return Tested(
            allowed=verdict.allowed,
            reason=verdict.reason,
            rule=verdict.rule,
            addresses=tuple(str(address) for address in addresses),
            looked_inside=gate.must_look(host, port),
            secrets=tuple(grant.secret.name for grant in grants),
        )

    async def wait_event(self) -> tuple[str, NetworkEvent]:
        """The next event of any sandbox. Called by one task; where it is too slow, those who do most lose some."""
        while not self._reports:
            self._reported = anyio.Event()
            await self._reported.wait()
        return self._reports.take()

    async def shut(self) -> list[tuple[str, NetworkEvent]]:
        """Close all gates and open none any more; gives what nobody has heard yet, the ends of what was open too."""
        self._tasks = None
        for sandbox_id in list(self._posts):
            await self.close(sandbox_id)
        left = []
        while self._reports:
            left.append(self._reports.take())
        return left

    def _trust(self, http2: bool) -> ssl.SSLContext:
        """How the proxy itself checks the servers that it opens TLS to; made once, when it is needed first."""
        found = self._trusted.get(http2)
        if found is None:
            found = self._trusted[http2] = ssl.create_default_context()
            if self._trusted_file is not None:
                found.load_verify_locations(cafile=str(self._trusted_file))
            found.set_alpn_protocols(["h2", "http/1.1"] if http2 else ["http/1.1"])
        return found

    def _report(self, sandbox_id: str, event: NetworkEvent) -> None:
        """Tell of something: of a question at once, of the rest when whoever made the connection has been served."""
        first = not self._reports
        self._reports.add(sandbox_id, event)
        if event.kind == "ask":
            self._reported.set()
        elif first:
            asyncio.get_running_loop().call_later(limits.NETWORK_REPORT_S, lambda: self._reported.set())
        if event.kind == "limit" and not event.dropped:  # how many it were is known when the minute is over
            asyncio.get_running_loop().call_later(limits.NETWORK_REPORTS_SETTLED_S, self._settle, sandbox_id)

    def _settle(self, sandbox_id: str) -> None:
        post = self._posts.get(sandbox_id)
        if post is not None:
            post.gate.settle()

    def _gate(self, sandbox_id: str) -> Gate:
        """The gate of a sandbox; of one that sleeps one that nobody passes, with what is known of it all the same."""
        post = self._posts.get(sandbox_id)
        if post is not None:
            return post.gate
        gate = Gate(sandbox_id, self._report, self._keepsakes.traffic(sandbox_id))
        gate.apply(self.order(sandbox_id))
        return gate


async def _again(serve: Callable[[socket.socket], Awaitable[None]], sock: socket.socket) -> None:
    """Serve, and after a bug serve again: meanwhile nothing gets out."""
    while True:
        try:
            await serve(sock)
        except Exception as error:
            log.error("egress failed", error=repr(error))
            await anyio.sleep(limits.LOOP_RETRY_S)
