"""Use cases of networks: the policy of each sandbox, its secrets, its questions, and its events in the audit log.

What is on record is what the node enforces: it is written first, then sent, and sent again at every start. A node that
has not heard of a sandbox's policy lets nothing through. Who changes it reads, writes and sends in one turn, so that no
change undoes another. The inside is told afterwards: it may be slow to answer, and nothing that holds waits for that.
"""

from __future__ import annotations

import ipaddress
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from urllib.parse import urlsplit

import anyio
import structlog

from atoll.control import rulesecrets
from atoll.control.authz import WRITE, Principal
from atoll.control.events import Events
from atoll.control.exclusive import Exclusive
from atoll.control.ledger import Ledger
from atoll.control.secrets import Secrets
from atoll.control.store import events as event_rows
from atoll.control.store import policies as rows
from atoll.control.store.engine import Store
from atoll.control.store.policies import NetworkRecord
from atoll.model import limits
from atoll.model.errors import AtollError, Conflict, InvalidArgument, Unavailable
from atoll.model.lifecycle import FINAL
from atoll.model.policy import Compiled, Policy, compile_policy, normal_name
from atoll.model.sandbox import Sandbox
from atoll.model.secret import PLACEHOLDER_PREFIX, Secret
from atoll.wire.network import Ask, NetworkEvent, NetworkOrder, NetworkStatus, Tested, Trial
from atoll.wire.node import NodePort

log = structlog.get_logger(__name__)

Lists = Mapping[str, Sequence[str]]
_FACTS = [field.name for field in fields(NetworkEvent) if field.name not in ("number", "at", "kind", "allowed")]
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


@dataclass(frozen=True, slots=True)
class Network:
    """What a sandbox may reach and which secrets it has."""

    policy: Policy
    secrets: tuple[str, ...]
    enforced: Compiled
    """What the node holds it to: lists are put in, and nothing is allowed where it could not be told."""


class Policies:
    """The networks of all sandboxes."""

    def __init__(
        self, store: Store, ledger: Ledger, node: NodePort, secrets: Secrets, events: Events, lists: Lists | None = None
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._node = node
        self._secrets = secrets
        self._events = events
        self._lists = lists or {}
        self._changing = Exclusive()
        self._telling = Exclusive()
        self._unlogged: tuple[str, NetworkEvent] | None = None

    @property
    def secrets(self) -> Secrets:
        return self._secrets

    @property
    def lists(self) -> Lists:
        """The operator's lists, by name."""
        return self._lists

    async def check(self, owner: str, policy: Policy | None, names: tuple[str, ...]) -> None:
        """Refuse what cannot be enforced, before anything is made."""
        compile_policy(policy or Policy(), self._lists)
        if len(names) > limits.SECRETS_PER_SANDBOX_MAX or len(set(names)) != len(names):
            raise InvalidArgument(
                f"a sandbox has at most {limits.SECRETS_PER_SANDBOX_MAX} secrets, each once", code="invalid_secret"
            )
        await self._secrets.check_known(owner, names)
        if policy is not None:
            await self._secrets.check_named(owner, policy)

    async def begin(self, record: NetworkRecord) -> None:
        """Have the node know the network of a new sandbox, which went on record with it."""
        async with self._changing.turn(record.sandbox_id):
            known = await self._store.read(rows.get, record.sandbox_id)  # perhaps changed since
            await self._send(known or record)

    async def copy(self, owner: str, source_id: str, sandbox_id: str) -> None:
        """The same network for a sandbox that was made of another; its placeholders are those in its memory."""
        record = await self._store.read(rows.get, source_id)
        if record is not None and record.owner == owner:
            async with self._changing.turn(sandbox_id):
                await self._put(replace(record, sandbox_id=sandbox_id))

    async def restore(self) -> None:
        """Have the node know what is on record, once, at start, with everything under the newest key."""
        await self._secrets.reseal()
        sandbox_ids = [record.sandbox_id for record in await self._store.read(rows.live)]
        await self._send_again(sandbox_ids)

    async def get(self, principal: Principal, reference: str) -> Network:
        """As far as it is the caller's to see: values of headers are for those who could set them."""
        record = await self._record(principal, await self._ledger.find(principal.owner, reference))
        network = self._network(record)
        return network if WRITE in principal.scopes else replace(network, policy=network.policy.without_values())

    def _network(self, record: NetworkRecord) -> Network:
        enforced = self._node.network_rules(record.sandbox_id)
        return Network(record.policy, tuple(record.placeholders), enforced)

    async def set(self, principal: Principal, reference: str, policy: Policy) -> Network:
        """Another policy from now on; connections that it does not allow are cut."""
        await self.check(principal.owner, policy, ())
        sandbox = await self._live(principal, reference)
        record = await self._change(principal, sandbox, lambda known: replace(known, policy=policy))
        self._events.report(self._events.of(principal, "network.policy_changed", target=sandbox.id))
        return self._network(record)

    async def set_secrets(self, principal: Principal, reference: str, names: tuple[str, ...]) -> Network:
        """Other secrets from now on; one that it had keeps its placeholder."""
        await self.check(principal.owner, None, names)
        sandbox = await self._live(principal, reference)

        def changed(known: NetworkRecord) -> NetworkRecord:
            return replace(known, placeholders={name: known.placeholders.get(name) or _placeholder() for name in names})

        record = await self._change(principal, sandbox, changed)
        self._events.report(
            self._events.of(
                principal, "network.secrets_changed", target=sandbox.id, detail={"secrets": " ".join(names)}
            )
        )
        return self._network(record)

    async def secret_changed(self, principal: Principal, secret: Secret | str, action: str) -> None:
        """A secret was kept, rotated or removed: every live sandbox that has it follows at once."""
        name = secret if isinstance(secret, str) else secret.name
        self._events.report(self._events.of(principal, action, target=name))
        live = await self._store.read(rows.live, principal.owner)
        having = [one for one in live if name in one.placeholders or name in rulesecrets.named_in(one.policy)]
        await self._send_again([record.sandbox_id for record in having])

    async def status(self, principal: Principal, reference: str, after: int) -> NetworkStatus:
        sandbox = await self._live(principal, reference)
        return await self._node.network_status(sandbox.id, after)

    async def test(self, principal: Principal, reference: str, url: str, method: str) -> Tested:
        """What would happen to a request such as https://example.org/x, or a connection such as example.org:22."""
        trial = parse_trial(url, method)
        sandbox = await self._live(principal, reference)
        return await self._node.network_test(sandbox.id, trial)

    async def answer(self, principal: Principal, reference: str, ask_id: str, answer: str) -> Ask:
        """A person's word: `once` lets this one through, `always` puts the place on the list first.

        First, because the client that is let through may be back for a second connection at once.
        """
        sandbox = await self._live(principal, reference)
        if answer == "always":
            await self._list_asked(principal, sandbox, ask_id)
        ask = self._node.network_answer(sandbox.id, ask_id, answer != "refuse")
        detail = {"host": ask.host, "port": str(ask.port), "answer": answer}
        self._events.report(self._events.of(principal, "network.answered", target=sandbox.id, detail=detail))
        return ask

    async def _list_asked(self, principal: Principal, sandbox: Sandbox, ask_id: str) -> None:
        """The place of an open question becomes a rule. One that is not open any more has none."""
        newest = sys.maxsize  # no events, only what is open
        asks = (await self._node.network_status(sandbox.id, newest)).asks
        rules = [f"{ask.host}:{ask.port}" for ask in asks if ask.id == ask_id]

        def listed(known: NetworkRecord) -> NetworkRecord:
            new = [rule for rule in rules if rule not in known.policy.allow]
            return replace(known, policy=replace(known.policy, allow=(*known.policy.allow, *new)))

        if rules:
            await self._change(principal, sandbox, listed)

    async def log_step(self) -> None:
        """Put the next thing that happened on some network into its owner's audit log.

        The node has forgotten it by then. While the database is away it is kept here, and the others there.
        """
        self._unlogged = self._unlogged or await self._node.network_event()
        await self._log_unlogged()

    async def _log_unlogged(self) -> None:
        if self._unlogged is None:
            return
        try:
            await self._log(*self._unlogged)
        except Unavailable:
            raise
        except Exception:
            self._unlogged = None  # a log that stands still for one that it cannot take would lose all
            raise
        self._unlogged = None

    async def close(self) -> None:
        """The server stops: what is open ends, and is told; for a bounded time."""
        with anyio.move_on_after(limits.KILL_WAIT_S_MAX, shield=True), suppress(Unavailable):
            await self._log_unlogged()
            for sandbox_id, event in await self._node.network_shut():
                await self._log(sandbox_id, event)

    async def _log(self, sandbox_id: str, event: NetworkEvent) -> None:
        record = await self._ledger.record(sandbox_id)
        if record is not None:
            owner = record.owner
            result = "ok" if event.allowed or event.kind in ("ask", "secret_used") else "refused"
            # A question is for whoever listens, also by webhook, and those hear of sandboxes.
            action = "sandbox.asks" if event.kind == "ask" else f"network.{event.kind}"
            detail = event_detail(event)
            entry = self._events.of(None, action, owner=owner, target=sandbox_id, result=result, detail=detail)
            if event.kind == "ask":
                await self._store.write(event_rows.add, entry)
                self._events.written()
            else:
                self._events.report(entry)

    async def _change(
        self, principal: Principal, sandbox: Sandbox, changed: Callable[[NetworkRecord], NetworkRecord]
    ) -> NetworkRecord:
        """Make of what is on record something else, in its turn. What could not be enforced is not written.

        It is in force then. That the inside could not be told, which its owner may bring about, undoes nothing of it.
        """
        async with self._changing.turn(sandbox.id):
            record = changed(await self._record(principal, sandbox))
            compile_policy(record.policy, self._lists)
            await self._put(record)
        try:
            await self._tell(sandbox.id)
        except AtollError as error:
            log.warning("network_not_told", sandbox_id=sandbox.id, error=repr(error))
        return record

    async def _put(self, record: NetworkRecord) -> None:
        await self._store.write(rows.put, record)
        await self._send(record)

    async def _tell(self, sandbox_id: str) -> None:
        async with self._telling.turn(sandbox_id):  # else what was true before could be heard last
            await self._node.network_tell(sandbox_id)

    async def _send_again(self, sandbox_ids: Sequence[str]) -> None:
        """Send what is on record of many, side by side: an inside that is slow to hear of it delays no other."""
        async with anyio.create_task_group() as tasks:
            for sandbox_id in sandbox_ids:
                tasks.start_soon(self._send_safely, sandbox_id)

    async def _send_safely(self, sandbox_id: str) -> None:
        try:
            async with self._changing.turn(sandbox_id):
                record = await self._store.read(rows.get, sandbox_id)  # perhaps there is another since
                if record is not None:
                    await self._send_or_close(record)
            await self._tell(sandbox_id)
        except AtollError as error:
            log.warning("policy_half_sent", sandbox_id=sandbox_id, error=repr(error))

    async def _send_or_close(self, record: NetworkRecord) -> None:
        """As `_send`. A policy that cannot be enforced any more (a list is gone) allows nothing."""
        try:
            await self._send(record)
        except InvalidArgument as error:
            log.error("policy_unusable", sandbox_id=record.sandbox_id, error=error.message)
            self._node.network_set(record.sandbox_id, NetworkOrder())

    async def _send(self, record: NetworkRecord) -> None:
        """In a turn of the sandbox, and after it is on record: a secret that changes from here on is sent again."""
        grants = await self._secrets.grants(record.owner, record.placeholders)
        policy, more = await self._secrets.for_rules(record.owner, record.policy, _placeholder)
        order = NetworkOrder(compile_policy(policy, self._lists), (*grants, *more), record.owner)
        self._node.network_set(record.sandbox_id, order)

    async def _live(self, principal: Principal, reference: str) -> Sandbox:
        sandbox = await self._ledger.find(principal.owner, reference)
        if sandbox.state in FINAL:
            raise Conflict(
                f"the sandbox has ended ({sandbox.end_reason})", code="not_running", hint="Create a new one."
            )
        return sandbox

    async def _record(self, principal: Principal, sandbox: Sandbox) -> NetworkRecord:
        known = await self._store.read(rows.get, sandbox.id)
        return known or NetworkRecord(sandbox.id, principal.owner)


def network_of_new(owner: str, sandbox_id: str, policy: Policy | None, names: tuple[str, ...]) -> NetworkRecord | None:
    """The network of a new sandbox; None is that which every sandbox has, and costs nothing."""
    if policy is None and not names:
        return None
    return NetworkRecord(sandbox_id, owner, policy or Policy(), {name: _placeholder() for name in names})


def event_detail(event: NetworkEvent) -> dict[str, str]:
    """An event's facts as texts, without what is empty."""
    values = ((key, getattr(event, key)) for key in _FACTS)
    return {key: str(value) for key, value in values if value}


def parse_trial(url: str, method: str = "GET") -> Trial:
    """The request or connection that an address means; InvalidArgument (invalid_url) if it has no host or port."""
    try:
        split = urlsplit(url if "://" in url else f"//{url}")
        port = split.port or _PORTS.get(split.scheme or "https", 0)
        host = split.hostname or ""
    except ValueError:
        host, port = "", 0
    if not host or not port:
        raise InvalidArgument(
            f"{url[:200]!r} is not an address", code="invalid_url", hint="Write https://example.org or example.org:22."
        )
    try:
        host = str(ipaddress.IPv4Address(host))
    except ValueError:
        host = _tried_name(host)
    path = (split.path or "/") if split.scheme in _PORTS else split.path
    return Trial(host, port, method.upper(), path, plain=split.scheme in ("http", "ws"))


def _tried_name(host: str) -> str:
    try:
        return normal_name(host)
    except InvalidArgument:
        raise InvalidArgument(
            f"{host[:80]!r} is neither a host name nor an address of IPv4 in its usual form",
            code="invalid_url",
            hint="Write https://example.org or example.org:22. There is no IPv6 in a sandbox.",
        ) from None


def _placeholder() -> str:
    return PLACEHOLDER_PREFIX + secrets.token_hex(16)
