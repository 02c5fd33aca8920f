"""Use cases of sandboxes: create, find, list, move the deadline, kill; and the loops that end them in time."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import anyio
import structlog

from atoll.control import budgets, reconcile
from atoll.control.attempts import Attempt, Attempts
from atoll.control.authz import Principal
from atoll.control.clock import Clock
from atoll.control.deadlines import Deadlines
from atoll.control.ledger import Ledger, Still
from atoll.control.loops import forever
from atoll.control.policies import Policies, network_of_new
from atoll.control.reconcile import Action, Note
from atoll.control.sources import Sources
from atoll.control.store.creates import Allowance, Once, Openings
from atoll.control.store.moments import to_us
from atoll.control.store.policies import NetworkRecord
from atoll.control.store.sandboxes import Filter, Position
from atoll.control.teardown import Job, Teardown
from atoll.control.turnstile import Turnstile
from atoll.control.usage import Metering
from atoll.model import ids, limits
from atoll.model.errors import AtollError, Conflict, InvalidArgument, NotFound, Unavailable
from atoll.model.lifecycle import FINAL, EndReason, SleepReason, State, Trigger
from atoll.model.sandbox import Budget, DeadlineAction, Sandbox, SandboxSpec, check_timeout, hostname_of
from atoll.telemetry import Metrics
from atoll.wire import codec
from atoll.wire.node import NodePort, SandboxOrder, SandboxStarted

log = structlog.get_logger(__name__)

REPEATED = "repeat"
"""The way of a create that gave back what an earlier one with the same key had made."""

_CURSOR = re.compile(r"(\d{1,19}):([a-z0-9]+)")


@dataclass(frozen=True, slots=True)
class Page:
    """Some sandboxes, newest first, and the cursor of what follows."""

    items: list[Sandbox]
    next: str | None
    total: int | None = None
    """How many there are on all pages, if that was asked for."""


@dataclass(frozen=True, slots=True)
class Query:
    """Which sandboxes a caller wants to see."""

    states: tuple[State, ...] = ()
    template: str | None = None
    name: str | None = None
    metadata: Mapping[str, str] | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    count: bool = False
    template_alone: bool = False
    """Whether a filter by template leaves out what was made from a snapshot that there still is."""


class Sandboxes:
    """What can be done with sandboxes."""

    def __init__(
        self,
        ledger: Ledger,
        teardown: Teardown,
        deadlines: Deadlines,
        metering: Metering,
        node: NodePort,
        clock: Clock,
        metrics: Metrics,
        policies: Policies,
        attempts: Attempts,
        sources: Sources,
    ) -> None:
        self._policies = policies
        self._metering = metering
        self._ledger = ledger
        self._teardown = teardown
        self._deadlines = deadlines
        self._node = node
        self._clock = clock
        self._metrics = metrics
        self._attempts = attempts.by_sandbox
        self._sources = sources
        self._turnstile = Turnstile(limits.CREATES_AT_ONCE, limits.CREATES_WAITING_MAX)
        self._creating = 0
        self._templates: frozenset[str] = frozenset()

    @property
    def waiting(self) -> int:
        """How many creates stand in line for their turn."""
        return self._turnstile.waiting

    async def create(self, principal: Principal, spec: SandboxSpec, key: str = "") -> tuple[Sandbox, SandboxStarted]:
        """Make a sandbox. It is on record before the node hears of it; an error leaves only that it failed.

        With a key, a second create of the same does not make a second sandbox: it gives back the first one.
        """
        spec.checked()
        once = once_of(key, spec) if key else None
        self._creating += 1
        try:
            return await self._create(principal, spec, once)
        finally:
            self._creating -= 1

    async def _create(
        self, principal: Principal, spec: SandboxSpec, once: Once | None
    ) -> tuple[Sandbox, SandboxStarted]:
        spec = await self._sources.settled(principal.owner, spec)
        if spec.snapshot_id is None:
            await self._check_template(spec.template)
        await self._policies.check(principal.owner, spec.policy, spec.secrets)
        await self._metering.jumps.settle()
        sandbox = self._new(spec)
        network = network_of_new(principal.owner, sandbox.id, spec.policy, spec.secrets)
        openings = Openings(spec.ports, network)
        allowance = Allowance(principal.tenant_quota, principal.key_quota, self._metering.prices)
        earlier = await self._ledger.add(principal, sandbox, allowance, once, openings)
        if earlier is not None:
            return await self._wait_made(principal, earlier.id), SandboxStarted(earlier.id, {}, way=REPEATED)
        begun = time.monotonic()
        outcome = "failed"
        failed: tuple[str, ...] = ()
        try:
            result = await self._attempt(principal.owner, sandbox, spec, network)
            outcome, failed = result[1].way, result[1].failed
            self._metering.note(principal.owner, result[0], principal.tenant_quota)
        except AtollError as error:
            failed = error.failed_ways
            raise
        finally:
            for way in failed:
                self._metrics.claim_failures.labels(way).inc()
            self._metrics.sandbox_create_s.labels(outcome).observe(time.monotonic() - begun)
        return result

    async def _wait_made(self, principal: Principal, sandbox_id: str) -> Sandbox:
        """A sandbox that another request makes, once that is done."""
        with anyio.move_on_after(limits.IDEMPOTENCY_WAIT_S_MAX) as patience:
            while (found := await self._ledger.find(principal.owner, sandbox_id)).state is State.CREATING:
                attempt = self._attempts.get(sandbox_id)
                if attempt is not None and not attempt.finished.is_set():
                    await attempt.finished.wait()
                else:  # another process is at work on it, or its failure is just being put on record
                    await anyio.sleep(limits.IDEMPOTENCY_LOOK_S)
        if patience.cancelled_caught:
            raise Unavailable(
                "the first create with this key is not done yet",
                code="create_unfinished",
                hint="Try again with the same key: it makes no second sandbox.",
            )
        if found.end_reason is EndReason.START_FAILED:
            raise Unavailable(
                f"the first create with this key failed: {found.end_detail}",
                code="start_failed",
                hint="Try again: the key is free for another attempt.",
            )
        return found

    async def find(self, principal: Principal, reference: str) -> Sandbox:
        return await self._ledger.find(principal.owner, reference)

    async def list(self, principal: Principal, query: Query, cursor: str | None, items_max: int) -> Page:
        """One page, newest first. A cursor is a place in the order: pages stay stable while sandboxes come and go."""
        if not 1 <= items_max <= limits.PAGE_ITEMS_MAX:
            raise InvalidArgument(f"limit is not between 1 and {limits.PAGE_ITEMS_MAX}", code="invalid_query")
        wanted = Filter(
            principal.owner,
            query.states,
            query.template,
            query.name,
            query.metadata,
            query.created_after,
            query.created_before,
            query.template_alone,
        )
        after = None if cursor is None else cursor_decode(cursor)
        items = await self._ledger.page(wanted, after, items_max + 1)
        more = len(items) > items_max
        items = items[:items_max]
        total = await self._ledger.count(wanted) if query.count else None
        return Page(items, cursor_encode(items[-1]) if more else None, total)

    async def set_deadline(
        self, principal: Principal, reference: str, timeout_s: float, *, only_later: bool = False
    ) -> Sandbox:
        """Move the deadline to so many seconds from now, further away or nearer; or not nearer."""
        lasts = check_timeout(timeout_s)
        sandbox = await self._ledger.find(principal.owner, reference)
        await self._metering.jumps.settle()
        deadline_at = self._clock.now() + lasts
        found = await self._ledger.set_deadline(sandbox.id, deadline_at, principal, only_later=only_later)
        if found is None:
            raise not_running(await self._ledger.find(principal.owner, sandbox.id))
        self._deadlines.note(found)
        return replace(sandbox, deadline_at=found)

    async def set_budget(
        self, principal: Principal, reference: str, budget: Budget, action: DeadlineAction | None
    ) -> Sandbox:
        """Another budget in place of the old one; what has been used already counts. No action: the old one stays."""
        budget.checked()
        sandbox = await self._ledger.find(principal.owner, reference)
        if sandbox.state in FINAL:
            raise not_running(sandbox)
        known = await self._ledger.set_budget(sandbox, budget, action or sandbox.on_budget, principal)
        self._metering.note_awake(budget)
        return known

    async def kill(self, principal: Principal, reference: str, reason: EndReason = EndReason.KILLED_BY_USER) -> Sandbox:
        """End a sandbox and wait until it is gone; one that has ended is returned as it is."""
        sandbox = await self._ledger.find(principal.owner, reference)
        if sandbox.state in FINAL:
            return sandbox
        ended: Sandbox | None = None
        with anyio.move_on_after(limits.KILL_WAIT_S_MAX):
            job = await self._end(sandbox.id, reason, principal)
            ended = await job.wait() if job is not None else None
        return ended or await self._ledger.find(principal.owner, sandbox.id)

    async def discard(self, principal: Principal, sandbox_id: str) -> None:
        """End a sandbox that nobody will ask for again: it is on record as ending, and goes in its own time."""
        await self._end(sandbox_id, EndReason.KILLED_BY_USER, principal)

    async def drain(self) -> None:
        """End every sandbox, because the server is to stop for good."""
        for sandbox in await self._ledger.live():
            if sandbox.state is not State.PAUSED:  # of those nothing runs
                await self._end(sandbox.id, EndReason.SERVER_DRAINED)
        await self._teardown.wait_idle()

    async def stop_spent(self, sandbox_id: str) -> None:
        """Stop a sandbox whose budget, or its tenant's, is spent, in the way that its owner chose."""
        record = await self._ledger.record(sandbox_id)
        action = record.sandbox.on_budget if record else DeadlineAction.KILL
        if not self._deadlines.sleeps(sandbox_id, action, SleepReason.BUDGET_SPENT):
            prices, now = self._metering.prices, self._clock.now()
            still = functools.partial(budgets.is_spent, sandbox_id=sandbox_id, prices=prices, now=now)
            await self._end(sandbox_id, EndReason.BUDGET_SPENT, still=still)

    async def end_all_of(self, owner: str) -> None:
        """End every sandbox of a tenant that is being removed."""
        for sandbox in await self._ledger.live(owner):
            await self._end(sandbox.id, EndReason.TENANT_REMOVED)

    async def reconcile(self) -> None:
        """Make record and node agree, once, at start."""
        present, paused = self._node.sandbox_ids(), self._node.paused_ids()
        for sandbox in await self._ledger.load():
            for note in reconcile.settled(sandbox.state, sandbox.id in present, sandbox.id in paused):
                deadline_at = self._clock.now() + check_timeout(sandbox.timeout_s)
                await self._ledger.advance(sandbox.id, note, deadline_at=deadline_at)
        live = {sandbox.id: sandbox.state for sandbox in await self._ledger.live()}
        actions = reconcile.plan(live, present | paused, restarted=self._node.restarted())
        for action in actions:
            self._teardown.begin(action)
        for sandbox_id in sorted(live.keys() & present):
            await self._stand_or_go(sandbox_id, live[sandbox_id])
        if actions:
            log.info("reconciled", kept=len(live) - sum(a.sandbox_id in live for a in actions), ended=len(actions))

    async def _stand_or_go(self, sandbox_id: str, state: State) -> None:
        """Who is in standby by the record stands still, and who runs does; of one that was changing, neither is sure.

        Of one that cannot be told, the next call finds out.
        """
        try:
            if state is State.STANDBY:
                await self._node.sandbox_standby(sandbox_id)
            elif state is State.RUNNING:
                await self._node.sandbox_wake(sandbox_id)
        except Exception as error:  # one that is of no use does not keep the server from its start
            log.warning("standby_unsettled", sandbox_id=sandbox_id, error=repr(error))

    async def watch_deadlines(self) -> None:
        await forever(self._deadlines.step)

    async def watch_idleness(self) -> None:
        await forever(self._deadlines.idle_step)

    async def watch_usage(self) -> None:
        async def step() -> None:
            await self._metering.step(self.stop_spent)

        await forever(step)

    async def watch_deaths(self) -> None:
        await forever(self._bury)

    async def _bury(self) -> None:
        died = await self._node.wait_death()
        log.warning("sandbox_died", sandbox_id=died.sandbox_id, reason=died.reason, detail=died.detail)
        self._teardown.begin(Action(died.sandbox_id, first=Note(Trigger.DIED, died.reason, died.detail)))

    async def _end(
        self, sandbox_id: str, reason: EndReason, by: Principal | None = None, still: Still | None = None
    ) -> Job | None:
        """Put the end on record and begin it; None if it has ended already, or there is no reason any more."""
        note = Note(Trigger.KILL_ASKED, reason, f"by the key {by.key_id}" if by else "")
        sandbox = await self._ledger.advance(sandbox_id, note, by=by, still=still)
        if sandbox is None or sandbox.state is not State.ENDING:
            return None
        attempt = self._attempts.get(sandbox_id)
        if attempt is not None:
            attempt.scope.cancel()
        return self._teardown.begin(Action(sandbox_id), attempt.finished if attempt else None)

    async def _attempt(
        self, owner: str, sandbox: Sandbox, spec: SandboxSpec, network: NetworkRecord | None
    ) -> tuple[Sandbox, SandboxStarted]:
        attempt = self._attempts[sandbox.id] = Attempt(anyio.CancelScope(), anyio.Event())
        try:
            with attempt.scope:
                return await self._start(owner, sandbox, spec, network)
            raise _killed_early()
        except BaseException as error:
            await self._give_up(sandbox.id, error, attempt)
            raise
        finally:
            del self._attempts[sandbox.id]
            attempt.finished.set()

    async def _start(
        self, owner: str, sandbox: Sandbox, spec: SandboxSpec, network: NetworkRecord | None
    ) -> tuple[Sandbox, SandboxStarted]:
        order = SandboxOrder(
            sandbox_id=sandbox.id,
            template=spec.template,
            resources=spec.resources,
            env=spec.env,
            hostname=hostname_of(sandbox),
            image=spec.snapshot_id or "",
            memory=spec.memory,
            volumes=spec.volumes,
            crowded=self._creating > 1,
        )
        async with self._turnstile.turn(owner):
            if network is not None:
                await self._policies.begin(network)
            if spec.network_of is not None:
                await self._policies.copy(owner, spec.network_of, sandbox.id)
            started = await self._node.sandbox_create(order)
        await self._metering.jumps.settle()
        deadline_at = self._clock.now() + check_timeout(spec.timeout_s)
        known = await self._ledger.advance(sandbox.id, Note(Trigger.STARTED), deadline_at=deadline_at)
        if known is None or known.state is not State.RUNNING:
            raise _killed_early()
        self._deadlines.note_running(known)
        return known, started

    async def _give_up(self, sandbox_id: str, error: BaseException, attempt: Attempt) -> None:
        """Record why there is no sandbox and have the rest removed; for a caller who has gone away too."""
        why = error.message if isinstance(error, AtollError) else "its creation was interrupted"
        note = Note(Trigger.START_FAILED, EndReason.START_FAILED, why)
        # A kill that stopped the creation waits for it to finish before it removes the rest.
        attempt.finished.set()
        with anyio.move_on_after(limits.KILL_WAIT_S_MAX, shield=True):
            await self._keep_log(sandbox_id, error)
            await self._teardown.begin(Action(sandbox_id, first=note)).wait()

    async def _keep_log(self, sandbox_id: str, error: BaseException) -> None:
        """What happened on the way, where the node has told it; the caller is told where to find it."""
        if not isinstance(error, AtollError) or not error.log:
            return
        try:
            await self._ledger.keep_start_log(sandbox_id, error.log)
        except Unavailable as trouble:  # the failure itself must go on record all the same
            log.warning("start_log_lost", sandbox_id=sandbox_id, error=repr(trouble))
        error.hint = error.hint or f"`atoll sandbox start-log {sandbox_id}` shows how far it came."

    async def _check_template(self, name: str) -> None:
        """Refuse what does not exist before anything goes on record; known names cost nothing."""
        if name in self._templates:
            return
        self._templates = frozenset(template.name for template in await self._node.templates())
        if name not in self._templates:
            raise NotFound(
                f"there is no template {name!r}",
                code="template_not_found",
                hint=f"Templates here: {', '.join(sorted(self._templates)) or 'none; run the set-up'}.",
            )

    def _new(self, spec: SandboxSpec) -> Sandbox:
        now = self._clock.now()
        return Sandbox(
            id=ids.mint(ids.SANDBOX, to_us(now) // 1000, secrets.token_bytes(16)),
            template=spec.template,
            name=spec.name,
            metadata=spec.metadata,
            resources=spec.resources,
            state=State.CREATING,
            created_at=now,
            started_at=None,
            deadline_at=now + check_timeout(spec.timeout_s),
            ended_at=None,
            end_reason=None,
            end_detail="",
            external_id=spec.external_id,
            on_deadline=spec.on_deadline,
            budget=spec.budget,
            on_budget=spec.on_budget,
            timeout_s=spec.timeout_s,
            idle_timeout_s=spec.idle_timeout_s,
            auto_resume=spec.auto_resume,
            volumes=spec.volumes,
            snapshot_id=spec.snapshot_id,
        )


def once_of(key: str, spec: SandboxSpec) -> Once:
    """A caller's key for one create, with what it stands for. Two specs are the same if all of their values are."""
    if len(key) > limits.IDEMPOTENCY_KEY_CHARS_MAX or not key.isascii() or not key.isprintable():
        raise InvalidArgument(
            "this cannot be an idempotency key",
            code="invalid_idempotency_key",
            hint=f"At most {limits.IDEMPOTENCY_KEY_CHARS_MAX} printable ASCII characters; a UUID is fine.",
        )
    return Once(key, hashlib.sha256(codec.encode_alike(spec)).hexdigest())


_HINTS = {State.PAUSED: "Resume it first.", State.STANDBY: "Wake it with any call."}


def not_running(sandbox: Sandbox) -> Conflict:
    """Why nothing can be done in this sandbox now."""
    why = f" ({sandbox.end_reason})" if sandbox.end_reason else ""
    return Conflict(
        f"the sandbox is {sandbox.state}{why}, not running",
        code="not_running",
        hint=_HINTS.get(sandbox.state, "Create a new one." if sandbox.state in FINAL else "Wait until it runs."),
    )


def cursor_encode(last: Sandbox) -> str:
    """A cursor that stands after this sandbox."""
    return cursor_text(last.created_at, last.id)


def cursor_text(created_at: datetime, last_id: str) -> str:
    """A cursor that stands after something that was made at that moment."""
    text = f"{to_us(created_at)}:{last_id}"
    return base64.urlsafe_b64encode(text.encode("ascii")).decode("ascii").rstrip("=")


def cursor_decode(cursor: str) -> Position:
    return cursor_read(cursor, ids.SANDBOX)


def cursor_read(cursor: str, kind: str) -> Position:
    """The place that a cursor stands for, in a list of things with this kind of id."""
    try:
        text = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)).decode("ascii")
    except ValueError:
        text = ""
    match = _CURSOR.fullmatch(text)
    if match is None or not ids.is_id(kind, match[2]):
        raise InvalidArgument("this is not a cursor", code="invalid_cursor", hint="Use `next` of an earlier page.")
    return Position(min(int(match[1]), 2**63 - 1), match[2])


def _killed_early() -> Conflict:
    return Conflict("the sandbox was killed while it was being created", code="killed")
