"""The parts of control, made and joined in one place, made to agree with the node, and set going."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from anyio.abc import TaskGroup

from atoll.control.accounts import Accounts
from atoll.control.attempts import Attempts
from atoll.control.clock import Clock
from atoll.control.deadlines import Deadlines
from atoll.control.estates import Estates
from atoll.control.fileurls import FileUrls
from atoll.control.ingress import Ingress
from atoll.control.ledger import Ledger
from atoll.control.loops import forever
from atoll.control.policies import Lists, Policies
from atoll.control.sandboxes import Sandboxes
from atoll.control.secrets import Secrets
from atoll.control.snapshots import Snapshots
from atoll.control.sources import Sources
from atoll.control.states import States
from atoll.control.store.engine import Store
from atoll.control.teardown import Teardown
from atoll.control.tickets import Tickets
from atoll.control.transfers import Transfers
from atoll.control.vault import Vault, key_new
from atoll.control.visitlog import VisitLog
from atoll.control.volumes import Volumes
from atoll.control.watchers import Watchers
from atoll.telemetry import Metrics
from atoll.wire.node import NodePort


@dataclass(frozen=True, slots=True)
class Keyring:
    """The keys of signed links and of stored secrets. Where one is empty, a new one is made that nobody keeps."""

    links: bytes = b""
    secrets: bytes = b""

    def vault(self) -> Vault:
        """What encrypts values at rest."""
        return Vault(self.secrets or key_new())


@dataclass(frozen=True, slots=True)
class Parts:
    """One of each, joined."""

    node: NodePort
    metrics: Metrics
    accounts: Accounts
    ledger: Ledger
    policies: Policies
    sandboxes: Sandboxes
    states: States
    snapshots: Snapshots
    transfers: Transfers
    volumes: Volumes
    estates: Estates
    ingress: Ingress
    visit_log: VisitLog
    file_urls: FileUrls
    tickets: Tickets
    watchers: Watchers

    @classmethod
    def join(
        cls,
        store: Store,
        node: NodePort,
        clock: Clock,
        metrics: Metrics,
        accounts: Accounts,
        tasks: TaskGroup,
        keyring: Keyring,
        lists: Lists | None,
    ) -> Parts:
        events, metering = accounts.events, accounts.usage
        ledger = Ledger(store, clock, metrics, events)
        teardown = Teardown(ledger, node, metering, tasks)
        deadlines = Deadlines(ledger, teardown, node, clock)
        attempts = Attempts()
        secrets = Secrets(store, clock, keyring.vault())
        policies = Policies(store, ledger, node, secrets, events, lists)
        sources = Sources(store, node)
        sandboxes = Sandboxes(ledger, teardown, deadlines, metering, node, clock, metrics, policies, attempts, sources)
        states = States(ledger, deadlines, metering, attempts, node, clock)
        metering.jumps.moved.append(ledger.clock_moved)
        deadlines.jumps = metering.jumps
        deadlines.sleeper = functools.partial(_begin, tasks, states.put_to_sleep)
        snapshots = Snapshots(store, ledger, states, sandboxes, events, node, clock)
        volumes = Volumes(store, events, node, clock, keyring.links)
        visit_log = VisitLog(events)
        ingress = Ingress(store, ledger, node, clock, accounts.keys.authenticate, visit_log, keyring.links)
        ingress.awake = states.awake
        ingress.check_key = accounts.keys.ends.check
        tickets = Tickets(clock)

        def ended(key_id: str) -> None:
            ingress.cut_key(key_id)
            tickets.forget(key_id)

        accounts.keys.ends.on_end = ended
        return cls(
            node=node,
            metrics=metrics,
            accounts=accounts,
            ledger=ledger,
            policies=policies,
            sandboxes=sandboxes,
            states=states,
            snapshots=snapshots,
            transfers=Transfers(store, snapshots, events, node, clock),
            volumes=volumes,
            estates=Estates(store, clock, sandboxes, snapshots, volumes),
            ingress=ingress,
            visit_log=visit_log,
            file_urls=FileUrls(keyring.links, clock),
            tickets=tickets,
            watchers=Watchers(tasks),
        )

    async def reconcile(self) -> None:
        """Make record and node agree, before anybody is served."""
        await self.accounts.usage.recover()
        await self.accounts.webhooks.reseal()
        await self.sandboxes.reconcile()
        await self.snapshots.reconcile()
        await self.volumes.reconcile()
        await self.policies.restore()

    def begin(self, tasks: TaskGroup) -> None:
        """The loops that go on as long as the server does."""
        tasks.start_soon(forever, self.states.settle_step)
        tasks.start_soon(forever, self.snapshots.expire_step)
        tasks.start_soon(forever, self.estates.step)
        tasks.start_soon(forever, self.policies.log_step)
        tasks.start_soon(forever, self.visit_log.step)
        tasks.start_soon(forever, self.ingress.underway.step)
        tasks.start_soon(self.sandboxes.watch_deaths)
        tasks.start_soon(self.sandboxes.watch_deadlines)
        tasks.start_soon(self.sandboxes.watch_idleness)
        tasks.start_soon(self.sandboxes.watch_usage)
        self.accounts.begin(tasks)


def _begin(tasks: TaskGroup, act: Callable[..., Coroutine[Any, Any, Any]], *arguments: object) -> None:
    """Begin something about a sandbox that nobody waits for; it reports its own errors."""
    tasks.start_soon(act, *arguments)
