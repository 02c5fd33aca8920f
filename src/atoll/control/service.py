"""Control: one method for each use case, and the only door for the HTTP edge."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import anyio

from atoll.control import guests
from atoll.control.accounts import Accounts
from atoll.control.authz import Principal as Principal
from atoll.control.clock import Clock
from atoll.control.guests import Guest as Guest
from atoll.control.keys import KeySpec
from atoll.control.options import DEFAULT_OPTIONS, ControlOptions
from atoll.control.parts import Keyring as Keyring
from atoll.control.parts import Parts
from atoll.control.policies import Lists
from atoll.control.policies import Network as Network
from atoll.control.rates import Allowed as Allowed
from atoll.control.refusallog import Refusal
from atoll.control.sandboxes import REPEATED as REPEATED
from atoll.control.sandboxes import Page as Page
from atoll.control.sandboxes import Query as Query
from atoll.control.snapshots import SnapshotSpec as SnapshotSpec
from atoll.control.store.engine import Store
from atoll.model.errors import LimitExceeded
from atoll.model.sandbox import Budget, DeadlineAction, Sandbox, SandboxSpec
from atoll.model.template import Template
from atoll.telemetry import Metrics
from atoll.wire.node import (
    NodePort,
    NodeStatus,
    SandboxStarted,
    SeriesPoint,
)
from atoll.wire.signed import FileGrant


class Control:
    """Decides what exists and who may do what. `open` makes one and keeps its loops running."""

    def __init__(self, parts: Parts) -> None:
        self.states = parts.states
        self.snapshots = parts.snapshots
        self.transfers = parts.transfers
        self.volumes = parts.volumes
        self.policies = parts.policies
        self.secrets = parts.policies.secrets
        self.metrics = parts.metrics
        self.ingress = parts.ingress
        self.accounts = parts.accounts
        self.tickets = parts.tickets
        self.watchers = parts.watchers
        self._sandboxes = parts.sandboxes
        self._estates = parts.estates
        self._keys = parts.accounts.keys
        self._ledger = parts.ledger
        self._node = parts.node
        self._file_urls = parts.file_urls

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        store: Store,
        node: NodePort,
        clock: Clock,
        metrics: Metrics,
        key_path: Path | None = None,
        *,
        keyring: Keyring | None = None,
        egress_lists: Lists | None = None,
        options: ControlOptions = DEFAULT_OPTIONS,
    ) -> AsyncIterator[Control]:
        """Control over one node, with record and node made to agree. Leaving it stops the loops and no sandbox."""
        keyring = keyring or Keyring()
        accounts = Accounts.make(store, node, clock, metrics, options, keyring.vault())
        if key_path is not None:
            await accounts.keys.ensure_first(key_path)
        async with anyio.create_task_group() as tasks:
            parts = Parts.join(store, node, clock, metrics, accounts, tasks, keyring, egress_lists)
            await parts.reconcile()
            parts.begin(tasks)
            try:
                yield cls(parts)
            finally:
                tasks.cancel_scope.cancel()
                parts.visit_log.close()
                await parts.policies.close()
                await accounts.close()

    async def authenticate(self, key: str, source: str = "") -> Principal:
        return await self._keys.authenticate(key, source)

    def request_admit(self, principal: Principal) -> Allowed | None:
        """Count a request of this caller; LimitExceeded if its rate is used up."""
        try:
            return self.accounts.rates.take(principal)
        except LimitExceeded as error:
            refusal = Refusal(error.code, principal.source, principal.owner, principal.actor)
            self.accounts.refusals.note(refusal)
            raise

    async def key_create(self, owner: str, name: str) -> str:
        """A new key with all scopes, shown this once; for a tenant that is made if there is none."""
        await self.accounts.tenants.ensure(owner)
        return (await self._keys.create(None, owner, KeySpec(name)))[1]

    async def tenant_remove(self, principal: Principal, tenant: str) -> None:
        """Its keys open nothing from now on; what it has goes in its own time, also if this server is killed."""
        await self.accounts.tenants.remove(principal, tenant, self._sandboxes.end_all_of)
        self._estates.tenant_removed()

    async def sandbox_create(
        self, principal: Principal, spec: SandboxSpec, key: str = ""
    ) -> tuple[Sandbox, SandboxStarted]:
        return await self._sandboxes.create(principal, spec, key)

    async def sandbox_get(self, principal: Principal, reference: str) -> Sandbox:
        return await self._sandboxes.find(principal, reference)

    async def sandbox_list(self, principal: Principal, query: Query, cursor: str | None, items_max: int) -> Page:
        return await self._sandboxes.list(principal, query, cursor, items_max)

    async def sandbox_set_deadline(
        self, principal: Principal, reference: str, timeout_s: float, *, only_later: bool = False
    ) -> Sandbox:
        return await self._sandboxes.set_deadline(principal, reference, timeout_s, only_later=only_later)

    async def sandbox_set_budget(
        self, principal: Principal, reference: str, budget: Budget, action: DeadlineAction | None
    ) -> Sandbox:
        return await self._sandboxes.set_budget(principal, reference, budget, action)

    async def sandbox_start_log(self, principal: Principal, reference: str) -> str:
        return await self._ledger.start_log(await self._sandboxes.find(principal, reference))

    async def sandbox_kill(self, principal: Principal, reference: str) -> Sandbox:
        return await self._sandboxes.kill(principal, reference)

    @asynccontextmanager
    async def evaluation(self, principal: Principal, spec: SandboxSpec) -> AsyncIterator[Guest]:
        """The inside of a sandbox that lives as long as the block; its end is not waited for."""
        sandbox = (await self.sandbox_create(principal, spec))[0]
        try:
            yield await self.guest(principal, sandbox.id)
        finally:
            with anyio.CancelScope(shield=True):
                await self._sandboxes.discard(principal, sandbox.id)

    async def sandbox_series(self, principal: Principal, reference: str) -> Sequence[SeriesPoint]:
        """What a sandbox has used over the last hour, oldest first."""
        return self._node.sandbox_series((await self._sandboxes.find(principal, reference)).id)

    async def guest(self, principal: Principal, reference: str) -> Guest:
        """The inside of a running sandbox; Conflict (not_running) says why there is none."""
        return await guests.guest_of(principal, reference, self._ledger, self._node, self.states.awake)

    async def file_url(
        self, principal: Principal, reference: str, method: str, path: str, user: str | None, expires_s: float | None
    ) -> tuple[str, datetime]:
        """The text of a signed address of one file, and when it ends."""
        sandbox = await self._sandboxes.find(principal, reference)
        return self._file_urls.sign(principal, sandbox.id, method, path, user, expires_s)

    async def file_granted(self, text: str, method: str) -> tuple[Principal, FileGrant]:
        """Who acts by a signed address, and the one file that it opens."""
        grant = self._file_urls.verify(text, method)
        return await self._keys.with_quotas(self._file_urls.principal(grant)), grant

    async def templates(self, principal: Principal) -> Sequence[Template]:  # noqa: ARG002 - every owner sees the same
        return await self._node.templates()

    async def sandbox_counts(self, owner: str | None = None) -> dict[str, int]:
        """How many sandboxes are on record, by state; of one tenant or of all."""
        return {state.value: count for state, count in (await self._ledger.count_by_state(owner)).items()}

    def creates_waiting(self) -> int:
        """How many creates stand in line."""
        return self._sandboxes.waiting

    def node_status(self) -> NodeStatus:
        return self._node.status()

    async def drain(self) -> None:
        """End every sandbox: the server stops for good."""
        await self._sandboxes.drain()
