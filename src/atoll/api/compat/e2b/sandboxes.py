"""E2B's control plane for sandboxes: create, connect, list, show, move the deadline, kill, measure."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import unquote

import anyio
import msgspec

from atoll.api.compat.e2b import network, samples, shapes
from atoll.api.compat.e2b.ask import Ask, Operation
from atoll.api.compat.e2b.network import NetworkSettings
from atoll.api.compat.e2b.shapes import NewSandbox
from atoll.control.sandboxtokens import TokenKind
from atoll.control.service import Query
from atoll.model import limits
from atoll.model.errors import AtollError, Conflict, GuestFailed, InvalidArgument, NotFound
from atoll.model.lifecycle import FINAL
from atoll.model.port import ANY_PORT, PortAccess
from atoll.model.sandbox import DEFAULT_TIMEOUT_S, DeadlineAction, Sandbox

_PAGE_ITEMS_MAX: Final = 100
_OLD_TIMEOUT_S: Final = 15.0  # what the first version of the API says for a caller who says nothing


class Timeout(msgspec.Struct):
    timeout: float


class ConnectBody(msgspec.Struct):
    timeout: float | None = None
    memory: bool | None = None


class Refresh(msgspec.Struct):
    duration: float | None = None


async def create(ask: Ask) -> None:
    await _create(ask, DEFAULT_TIMEOUT_S)


async def create_old(ask: Ask) -> None:
    await _create(ask, _OLD_TIMEOUT_S)


async def _create(ask: Ask, default_timeout_s: float) -> None:
    asked = await ask.body(NewSandbox)
    refused = shapes.refused_options(asked)
    if refused:
        raise InvalidArgument(f"{', '.join(refused)}: this server does not have that", code="not_supported")
    asked.template_id = await template_id(ask, asked.template_id)
    spec = shapes.spec_of(asked, default_timeout_s, ask.templates, ask.principal.owner)
    sandbox, _ = await ask.control.sandbox_create(ask.principal, spec, ask.header(b"idempotency-key"))
    await ask.answer(await answer_of(ask, sandbox), 201)


async def template_id(ask: Ask, asked: str) -> str:
    """What a client names, with the id of a snapshot in place of its name."""
    name = shapes.template_name(asked, ask.templates)
    if name in shapes.TEMPLATES.values():
        return name
    try:
        found = await ask.control.snapshots.find(ask.principal, name)
    except NotFound:
        return asked
    templates = await ask.control.templates(ask.principal)
    return asked if any(template.name == name for template in templates) else found.id


async def as_made(ask: Ask, sandbox: Sandbox) -> Sandbox:
    """With the snapshot that it began from as its template, as long as there is one: with E2B it is one.

    That of a fork is gone at once, and is never shown.
    """
    if sandbox.snapshot_id is None:
        return sandbox
    try:
        found = await ask.control.snapshots.find(ask.principal, sandbox.snapshot_id)
    except NotFound:
        return sandbox
    return replace(sandbox, template=found.id)


async def ports_of(ask: Ask, sandbox: Sandbox) -> PortAccess:
    """The rules of all ports of a sandbox."""
    return await ask.control.ingress.access(ask.principal, sandbox.id, ANY_PORT)


async def answer_of(ask: Ask, sandbox: Sandbox) -> dict[str, Any]:
    tokens = ask.control.ingress.tokens
    inside, ports = tokens.mint(TokenKind.INSIDE, sandbox.id), tokens.mint(TokenKind.PORTS, sandbox.id)
    return shapes.created(await as_made(ask, sandbox), inside, ports, domain_of(ask))


def domain_of(ask: Ask) -> str:
    """The domain of the sandboxes' names, with the port that the caller came to."""
    base = ask.addresses.base or ask.header(b"host")
    _, colon, port = base.rpartition(":")
    return ask.addresses.domain + (f":{port}" if colon and port.isascii() and port.isdigit() else "")


async def find(ask: Ask, *, ended: bool = False) -> Sandbox:
    """The sandbox in the path, if it is the caller's; one that has ended is forgotten, but for what happened to it."""
    return await find_by_id(ask, unquote(ask.path["sandbox"]), ended=ended)


async def find_by_id(ask: Ask, reference: str, *, ended: bool = False) -> Sandbox:
    try:
        sandbox = await ask.control.sandbox_get(ask.principal, reference)
    except NotFound as error:
        raise no_sandbox(reference) from error
    if (sandbox.state in FINAL and not ended) or sandbox.id != reference:
        raise no_sandbox(reference)
    return sandbox


def no_sandbox(reference: str) -> NotFound:
    return NotFound(
        f"sandbox \"{reference[:80]}\" doesn't exist or you don't have access to it", code="sandbox_not_found"
    )


async def show(ask: Ask) -> None:
    sandbox = await find(ask)
    # It opens all that is inside; who may only read is shown the sandbox without it.
    token = ask.control.ingress.tokens.mint(TokenKind.INSIDE, sandbox.id) if ask.may_write else None
    policy = (await ask.control.policies.get(ask.principal, sandbox.id)).policy
    found = shapes.detail(await as_made(ask, sandbox), token, domain_of(ask), policy, await ports_of(ask, sandbox))
    memory = ask.control.states.paused_with_memory(sandbox)
    mode = {} if memory is None else {"pauseMode": "full" if memory else "filesystem"}
    await ask.answer({**found, **mode, "volumeMounts": await _mounts(ask, sandbox)})


async def _mounts(ask: Ask, sandbox: Sandbox) -> list[dict[str, str]]:
    names = [(await ask.control.volumes.find(ask.principal, mount.volume)).name for mount in sandbox.volumes]
    return [{"name": name, "path": mount.path} for name, mount in zip(names, sandbox.volumes, strict=True)]


async def _listed(ask: Ask, found: list[Sandbox]) -> list[dict[str, Any]]:
    """Entries of a list; a sandbox with volumes says which."""
    entries = [shapes.listed(await as_made(ask, one)) for one in found]
    for entry, one in zip(entries, found, strict=True):
        if one.volumes:
            entry["volumeMounts"] = await _mounts(ask, one)
    return entries


async def change_network(ask: Ask) -> None:
    """Another policy from now on; what is left out is as in a sandbox that was made without it."""
    asked = await ask.body(NetworkSettings)
    sandbox = await find(ask)
    policy = network.policy_of(asked, asked.allow_internet_access)
    await ask.control.policies.set(ask.principal, sandbox.id, policy)
    await ask.answer(None, 204)


async def kill(ask: Ask) -> None:
    sandbox = await find(ask)
    await ask.control.sandbox_kill(ask.principal, sandbox.id)
    await ask.answer(None, 204)


async def set_timeout(ask: Ask) -> None:
    """So many seconds from now; with none at all its deadline has come."""
    asked = await ask.body(Timeout)
    sandbox = await find(ask)
    if asked.timeout < 0:
        raise InvalidArgument("timeout is negative")
    if asked.timeout < limits.TIMEOUT_S_MIN:
        await _expire(ask, sandbox)
    else:
        await _set_deadline(ask, sandbox, asked.timeout)
    await ask.answer(None, 204)


async def _expire(ask: Ask, sandbox: Sandbox) -> None:
    """What would be done at its deadline, now. One that sleeps has none: it is not there to be given another."""
    if sandbox.state in shapes.ASLEEP:
        raise no_sandbox(sandbox.id)
    states, action = ask.control.states, sandbox.on_deadline
    try:
        if action is DeadlineAction.KILL:
            await ask.control.sandbox_kill(ask.principal, sandbox.id)
        elif action is DeadlineAction.STANDBY:
            await states.standby(ask.principal, sandbox.id)
        else:
            await states.pause(ask.principal, sandbox.id, memory=action is DeadlineAction.PAUSE)
    except Conflict as error:
        raise no_sandbox(sandbox.id) from error


async def _set_deadline(ask: Ask, sandbox: Sandbox, timeout_s: float, *, only_later: bool = False) -> Sandbox:
    try:
        return await ask.control.sandbox_set_deadline(ask.principal, sandbox.id, timeout_s, only_later=only_later)
    except Conflict as error:
        raise no_sandbox(sandbox.id) from error


async def refresh(ask: Ask) -> None:
    asked = await ask.body(Refresh)
    await extended(ask, await find(ask), asked.duration)
    await ask.answer(None, 204)


async def extended(ask: Ask, sandbox: Sandbox, timeout_s: float | None, since: datetime | None = None) -> Sandbox:
    """The sandbox with at least so much time left, counted from now or before: a deadline never comes nearer."""
    since = since or datetime.now(UTC)
    if timeout_s is None or (sandbox.deadline_at - since).total_seconds() >= timeout_s:
        return sandbox
    return await _set_deadline(ask, sandbox, timeout_s, only_later=True)


async def connect_to(ask: Ask) -> None:
    """A sandbox that sleeps wakes; one that runs has at least so much time left."""
    asked = await ask.body(ConnectBody)
    try:
        sandbox, woken = await _connected(ask, asked)
    except NotFound:  # it may have been put to sleep between the two looks at it
        sandbox, woken = await _connected(ask, asked)
    await ask.answer(await answer_of(ask, sandbox), 201 if woken else 200)


async def _connected(ask: Ask, asked: ConnectBody) -> tuple[Sandbox, bool]:
    since = datetime.now(UTC)
    sandbox, woken = await awake(ask, await find(ask), asked.timeout, memory=asked.memory)
    # Also of one that sleeps another may be first to wake it, for less time.
    return await extended(ask, sandbox, asked.timeout, since), woken


async def awake(ask: Ask, sandbox: Sandbox, timeout_s: float | None, *, memory: bool | None) -> tuple[Sandbox, bool]:
    """The sandbox, running, and whether it had to be woken."""
    if sandbox.state not in shapes.ASLEEP:
        return sandbox, False
    wanted_s = DEFAULT_TIMEOUT_S if timeout_s is None else timeout_s
    states = ask.control.states
    restored = memory is not False and states.paused_with_memory(sandbox)
    try:
        return await states.resume(ask.principal, sandbox.id, wanted_s, memory=memory is not False), True
    except GuestFailed as error:
        if not restored or error.code != "start_failed":
            raise
        raise Conflict(
            f"sandbox '{sandbox.id}' was paused while its guest agent did not respond",
            code="sandbox_snapshot_guest_agent_unresponsive",
            detail=error.detail,
        ) from error


async def list_old(ask: Ask) -> None:
    """All that run: in the first version of the API a list has no pages."""
    query = Query(states=shapes.AWAKE, metadata=shapes.metadata_of(ask.query.get("metadata", "")))
    await ask.answer(await _listed(ask, await _all(ask, query)))


async def list_page(ask: Ask) -> None:
    asked, template = ask.query, ask.query.get("template", "")
    query = Query(
        states=shapes.states_of(ask.words("state")),
        template=shapes.template_name(await template_id(ask, template), ask.templates) if template else None,
        template_alone=True,  # a snapshot is a template of its own here
        metadata=shapes.metadata_of(asked.get("metadata", "")),
    )
    limit = shapes.page_size(asked.get("limit", ""), _PAGE_ITEMS_MAX)
    cursor = asked.get("nextToken") or None
    if asked.get("order") == "asc" or asked.get("startedAfter"):
        items, following = await _ordered(ask, query, cursor, limit)
    else:
        page = await ask.control.sandbox_list(ask.principal, query, cursor, limit)
        items, following = page.items, page.next
    running = await ask.control.sandbox_list(ask.principal, replace(query, states=shapes.AWAKE, count=True), None, 1)
    headers = {"x-total-running": str(running.total), **({"x-next-token": following} if following else {})}
    await ask.answer(await _listed(ask, items), 200, headers)


async def _ordered(ask: Ask, query: Query, cursor: str | None, limit: int) -> tuple[list[Sandbox], str | None]:
    """Pages of all that live, oldest first or begun after a moment."""
    found = await _all(ask, query)
    after = shapes.moment_of(ask.query.get("startedAfter", ""))
    found = [sandbox for sandbox in found if after is None or shapes.begun_at(sandbox) >= after]
    return shapes.page_of(found, cursor, limit, newest_first=ask.query.get("order") != "asc")


async def _all(ask: Ask, query: Query) -> list[Sandbox]:
    """Newest first, and up to a bound that no list has more of."""
    found: list[Sandbox] = []
    place: str | None = None
    while True:
        page = await ask.control.sandbox_list(ask.principal, query, place, limits.PAGE_ITEMS_MAX)
        found += page.items
        place = page.next
        if place is None or len(found) >= limits.LIST_ENTRIES_MAX:
            return found


async def metrics(ask: Ask) -> None:
    sandbox = await find(ask)
    start, end = ask.query.get("start", ""), ask.query.get("end", "")
    shapes.in_range(0.0, start, end)  # what is wrong with them is said before anything is measured
    try:
        used = [] if sandbox.state in shapes.ASLEEP else await samples.series(ask, sandbox)
    except Conflict:
        await find(ask)  # one that has ended meanwhile is told as what is not there
        raise
    await ask.answer([shapes.metric(sandbox, use) for use in used if shapes.in_range(use.at_s, start, end)])


async def metrics_of_several(ask: Ask) -> None:
    wanted = ask.words("sandbox_ids")
    if len(wanted) > _PAGE_ITEMS_MAX:
        raise InvalidArgument(f"sandbox_ids are at most {_PAGE_ITEMS_MAX}", code="invalid_query")
    found: dict[str, Any] = {}
    failures: list[AtollError] = []
    places = anyio.CapacityLimiter(limits.E2B_SAMPLES_AT_ONCE)

    async def one(sandbox_id: str) -> None:
        try:
            async with places:
                sandbox = await find_by_id(ask, sandbox_id)
                if sandbox.state not in shapes.ASLEEP:  # to look inside would wake it
                    found[sandbox_id] = shapes.metric(sandbox, (await samples.series(ask, sandbox))[-1])
        except (NotFound, Conflict):
            return  # what is not there has no use
        except AtollError as error:
            failures.append(error)

    async with anyio.create_task_group() as tasks:
        for sandbox_id in dict.fromkeys(wanted):
            tasks.start_soon(one, sandbox_id)
    if failures:
        raise failures[0]
    await ask.answer({"sandboxes": found})


_ONE: Final = "/sandboxes/{sandbox}"

OPERATIONS: Final = (
    Operation("POST", "/v2/sandboxes", create),
    Operation("POST", "/sandboxes", create_old),
    Operation("GET", "/v2/sandboxes", list_page),
    Operation("GET", "/sandboxes", list_old),
    Operation("GET", "/sandboxes/metrics", metrics_of_several),
    Operation("GET", _ONE, show),
    Operation("DELETE", _ONE, kill),
    Operation("POST", _ONE + "/timeout", set_timeout),
    Operation("POST", _ONE + "/refreshes", refresh),
    Operation("POST", _ONE + "/connect", connect_to),
    Operation("POST", "/v2" + _ONE + "/connect", connect_to),
    Operation("GET", _ONE + "/metrics", metrics),
    Operation("PUT", _ONE + "/network", change_network),
)
