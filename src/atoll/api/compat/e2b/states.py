"""E2B's pause, resume, fork and snapshots."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

import anyio
import msgspec

from atoll.api.compat.e2b import sandboxes, shapes, templates
from atoll.api.compat.e2b.ask import Ask, Operation
from atoll.control.snapshots import SnapshotSpec
from atoll.model import limits
from atoll.model.errors import Conflict, GuestFailed, InvalidArgument, NotFound, Unavailable
from atoll.model.lifecycle import State
from atoll.model.sandbox import DeadlineAction
from atoll.model.snapshot import Snapshot

_FORKS_MAX: Final = 20


class PauseBody(msgspec.Struct, rename="camel"):
    memory: bool | None = None
    require_healthy_guest: bool | None = None


class ResumeBody(msgspec.Struct, rename="camel"):
    timeout: float | None = None
    auto_pause: bool | None = None
    memory: bool | None = None


class ForkBody(msgspec.Struct):
    timeout: float | None = None
    count: int | None = None


class SnapshotBody(msgspec.Struct):
    name: str | None = None
    memory: bool | None = None


async def pause(ask: Ask) -> None:
    asked = await ask.body(PauseBody)
    sandbox = await sandboxes.find(ask)
    if sandbox.state in (State.PAUSING, State.PAUSED):  # one that wakes up can be paused, as soon as it has
        raise Conflict(f"sandbox '{sandbox.id}' is already paused", code="already_paused")
    if asked.require_healthy_guest or asked.memory is False:  # without memory the inside writes down what it has
        await _check_answers(ask, sandbox.id)
    await ask.control.states.pause(ask.principal, sandbox.id, memory=asked.memory is not False)
    await ask.answer(None, 204)


async def _check_answers(ask: Ask, sandbox_id: str) -> None:
    """Refuse to pause what does not answer within its time; it goes on."""
    guest = await ask.control.guest(ask.principal, sandbox_id)
    try:
        with anyio.fail_after(limits.HEALTH_S_MAX):
            await guest.call("ping", {})
    except (GuestFailed, TimeoutError) as error:
        raise Unavailable(
            f"sandbox '{sandbox_id}' was not paused: its guest agent does not respond",
            code="guest_unresponsive",
            detail=repr(error),
        ) from error


async def resume(ask: Ask) -> None:
    """The first way to wake a sandbox; one that runs is a conflict here."""
    asked = await ask.body(ResumeBody)
    sandbox = await sandboxes.find(ask)
    if sandbox.state in shapes.AWAKE:
        raise Conflict(f"sandbox '{sandbox.id}' is already running", code="already_running")
    # One that would pause and shall not keeps more than was asked for; the other way round it would lose all.
    if asked.auto_pause and sandbox.on_deadline is DeadlineAction.KILL:
        raise InvalidArgument(
            "autoPause: what happens at the deadline is chosen when a sandbox is made", code="not_supported"
        )
    woken, _ = await sandboxes.awake(ask, sandbox, asked.timeout, memory=asked.memory)
    await ask.answer(await sandboxes.answer_of(ask, woken), 201)


async def fork(ask: Ask) -> None:
    asked = await ask.body(ForkBody)
    sandbox = await sandboxes.find(ask)
    count = 1 if asked.count is None else asked.count
    if not 1 <= count <= _FORKS_MAX:
        raise InvalidArgument(f"count is not between 1 and {_FORKS_MAX}")
    if sandbox.state is State.PAUSED:
        raise Conflict(f"sandbox '{sandbox.id}' is paused", code="already_paused")
    ports = await sandboxes.ports_of(ask, sandbox)
    made: list[dict[str, Any]] = []
    for copy in await ask.control.snapshots.fork(ask.principal, sandbox.id, count, asked.timeout, ports):
        if copy.sandbox is not None:
            made.append({"sandbox": await sandboxes.answer_of(ask, copy.sandbox)})
        elif copy.error is not None:
            made.append({"error": {"code": copy.error.http_status, "message": copy.error.message}})
    await ask.answer(made, 201)


async def snapshot(ask: Ask) -> None:
    """With a name that another one has, this one is what the name means from now on."""
    asked = await ask.body(SnapshotBody)
    sandbox = await sandboxes.find(ask)
    name = shapes.template_name(asked.name) if asked.name else None
    spec = SnapshotSpec(name=name, memory=asked.memory is not False, takes_name=name is not None)
    await ask.answer(shape(await ask.control.snapshots.take(ask.principal, sandbox.id, spec)), 201)


def shape(taken: Snapshot) -> dict[str, Any]:
    return {"snapshotID": taken.id, "names": [taken.name] if taken.name else []}


async def list_snapshots(ask: Ask) -> None:
    limit = shapes.page_size(ask.query.get("limit", ""))
    name = ask.query.get("name", "")
    if name:
        found, following = await _named(ask, shapes.template_name(name)), None
    else:
        found, following = await _page(ask, limit)
    headers = {"x-next-token": following} if following else {}
    await ask.answer([shape(taken) for taken in found], 200, headers)


async def _page(ask: Ask, limit: int) -> tuple[list[Snapshot], str | None]:
    sandbox, cursor = ask.query.get("sandboxID") or None, ask.query.get("nextToken") or None
    try:
        return await ask.control.snapshots.page(ask.principal, sandbox, cursor, limit)
    except NotFound:  # of a sandbox that is not there there are none: this list has no 404
        return [], None


async def _named(ask: Ask, name: str) -> list[Snapshot]:
    try:
        taken = await ask.control.snapshots.find(ask.principal, name)
    except NotFound:
        return []
    wanted = ask.query.get("sandboxID")
    return [taken] if not wanted or taken.sandbox_id == wanted else []


async def delete(ask: Ask) -> None:
    """E2B's snapshots are templates, and are deleted as such; templates of ours stay."""
    reference = shapes.template_name(unquote(ask.path["template"]))
    if any(template.name == reference for template in await ask.control.templates(ask.principal)):
        await templates.refuse(ask)
    try:
        await ask.control.snapshots.delete(ask.principal, reference)
    except NotFound as error:
        raise NotFound(f"there is no template or snapshot '{reference[:80]}'", code=error.code) from error
    await ask.answer(None, 204)


_ONE: Final = "/sandboxes/{sandbox}"

OPERATIONS: Final = (
    Operation("POST", _ONE + "/pause", pause),
    Operation("POST", _ONE + "/resume", resume),
    Operation("POST", _ONE + "/fork", fork),
    Operation("POST", _ONE + "/snapshots", snapshot),
    Operation("GET", "/snapshots", list_snapshots),
    Operation("DELETE", "/templates/{template}", delete),
)
