"""Control: one method for each use case, and the only door for the HTTP edge."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from atoll.control import guests
from atoll.control.authz import Principal as Principal
from atoll.control.clock import Clock
from atoll.control.deadlines import Deadlines
from atoll.control.guests import Guest as Guest
from atoll.control.keys import Keys
from atoll.control.ledger import Ledger
from atoll.control.sandboxes import Page as Page
from atoll.control.sandboxes import Query as Query
from atoll.control.sandboxes import Sandboxes
from atoll.control.store.engine import Store
from atoll.control.teardown import Teardown
from atoll.model.sandbox import Sandbox, SandboxSpec
from atoll.model.template import Template
from atoll.telemetry import Metrics
from atoll.wire.node import NodePort, NodeStatus, SandboxStarted


class Control:
    """Decides what exists and who may do what. `open` makes one and keeps its loops running."""

    def __init__(self, sandboxes: Sandboxes, keys: Keys, ledger: Ledger, node: NodePort, metrics: Metrics) -> None:
        self._sandboxes = sandboxes
        self._keys = keys
        self._ledger = ledger
        self._node = node
        self.metrics = metrics

    @classmethod
    @asynccontextmanager
    async def open(
        cls, store: Store, node: NodePort, clock: Clock, metrics: Metrics, key_path: Path | None = None
    ) -> AsyncIterator[Control]:
        """Control over one node, with record and node made to agree. Leaving it stops the loops and no sandbox."""
        ledger = Ledger(store, clock, metrics)
        keys = Keys(store, clock)
        if key_path is not None:
            await keys.ensure_first(key_path)
        async with anyio.create_task_group() as tasks:
            teardown = Teardown(ledger, node, tasks)
            deadlines = Deadlines(ledger, teardown, clock)
            sandboxes = Sandboxes(ledger, teardown, deadlines, node, clock, metrics)
            await sandboxes.reconcile()
            tasks.start_soon(sandboxes.watch_deaths)
            tasks.start_soon(sandboxes.watch_deadlines)
            try:
                yield cls(sandboxes, keys, ledger, node, metrics)
            finally:
                tasks.cancel_scope.cancel()

    async def authenticate(self, key: str) -> Principal:
        return await self._keys.authenticate(key)

    async def key_create(self, owner: str, name: str) -> str:
        """A new key, shown this once."""
        return (await self._keys.create(owner, name))[1]

    async def sandbox_create(self, principal: Principal, spec: SandboxSpec) -> tuple[Sandbox, SandboxStarted]:
        return await self._sandboxes.create(principal, spec)

    async def sandbox_get(self, principal: Principal, reference: str) -> Sandbox:
        return await self._sandboxes.find(principal, reference)

    async def sandbox_list(self, principal: Principal, query: Query, cursor: str | None, items_max: int) -> Page:
        return await self._sandboxes.list(principal, query, cursor, items_max)

    async def sandbox_set_deadline(self, principal: Principal, reference: str, timeout_s: float) -> Sandbox:
        return await self._sandboxes.set_deadline(principal, reference, timeout_s)

    async def sandbox_kill(self, principal: Principal, reference: str) -> Sandbox:
        return await self._sandboxes.kill(principal, reference)

    async def guest(self, principal: Principal, reference: str) -> Guest:
        """The inside of a running sandbox; Conflict (not_running) says why there is none."""
        return await guests.guest_of(principal, reference, self._ledger, self._node)

    async def templates(self, principal: Principal) -> Sequence[Template]:  # noqa: ARG002 - every owner sees the same
        return await self._node.templates()

    async def sandbox_counts(self) -> dict[str, int]:
        """How many sandboxes are on record, by state."""
        return {state.value: count for state, count in (await self._ledger.count_by_state()).items()}

    def node_status(self) -> NodeStatus:
        return self._node.status()

    async def drain(self) -> None:
        """End every sandbox: the server stops for good."""
        await self._sandboxes.drain()
