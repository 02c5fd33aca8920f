"""What happened to sandboxes, in E2B's words: logs and lifecycle events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from atoll.api.compat.e2b import sandboxes, shapes
from atoll.api.compat.e2b.ask import Ask, Operation
from atoll.control.events import EventFilter
from atoll.model import limits
from atoll.model.errors import InvalidArgument
from atoll.model.event import Event
from atoll.model.lifecycle import Trigger

_ITEMS_MAX: Final = 100
_ANY: Final = "sandbox.*"
_LEVELS: Final = ("debug", "info", "warn", "error")
_CREATED: Final = "sandbox.lifecycle.created"
_RESUMED: Final = "sandbox.lifecycle.resumed"
# Which of our actions tell of which of E2B's kinds. One that runs was created or woken: its trigger says which.
ACTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    _CREATED: ("sandbox.running",),
    "sandbox.lifecycle.paused": ("sandbox.paused",),
    _RESUMED: ("sandbox.running",),
    "sandbox.lifecycle.updated": ("sandbox.deadline",),
    "sandbox.lifecycle.killed": ("sandbox.killed", "sandbox.failed"),
}
_BY_TRIGGER: Final = {Trigger.STARTED.value: _CREATED, Trigger.RESUMED.value: _RESUMED}


def log_entry(event: Event) -> dict[str, Any]:
    """One thing that happened, as an entry of a log."""
    level = "error" if event.action == "sandbox.failed" else "info"
    fields = {"logger": "atoll", "event": event.action, "actor": event.actor, **event.detail}
    return {"timestamp": shapes.moment(event.at), "message": event.action, "level": level, "fields": fields}


def log_line(event: Event) -> dict[str, Any]:
    """The same as a line: JSON in a text, with the level and the logger that E2B's CLI looks for."""
    entry = log_entry(event)
    words = {"level": entry["level"], "message": entry["message"], "timestamp": entry["timestamp"], **entry["fields"]}
    return {"timestamp": entry["timestamp"], "line": json.dumps(words)}


def kind_of(event: Event) -> str:
    """E2B's kind of an event; nothing if it has none, as a create that failed: with E2B there was no sandbox."""
    if event.action == "sandbox.running":
        return _BY_TRIGGER.get(event.detail.get("trigger", ""), "")
    if event.action == "sandbox.paused" and event.detail.get("trigger") != Trigger.PAUSED.value:
        return ""
    if event.action == "sandbox.failed" and event.detail.get("trigger") == Trigger.START_FAILED.value:
        return ""
    return next((kind for kind, actions in ACTIONS.items() if event.action in actions), "")


def lifecycle_event(event: Event) -> dict[str, Any] | None:
    kind = kind_of(event)
    if not kind:
        return None
    template = event.detail.get("template", "")
    return {
        "version": "v2",
        "id": str(event.number),
        "type": kind,
        "timestamp": shapes.moment(event.at),
        "sandboxId": event.target,
        "sandboxExecutionId": event.target,
        "sandboxTemplateId": template,
        "sandboxBuildId": shapes.build_id(template),
        "sandboxTeamId": event.owner,
        "eventData": dict(event.detail),
    }


async def _events(ask: Ask, wanted: EventFilter, items_max: int, *, oldest: bool) -> list[Event]:
    """Some of the events, oldest of them first: those with which they begin, or the newest."""
    page = await ask.control.accounts.events.page(wanted, 0 if oldest else None, items_max)
    return page.items


async def _target(ask: Ask) -> str:
    """The sandbox in the path; what happened to it stays on record when it has ended."""
    return (await sandboxes.find(ask, ended=True)).id


def _since(text: str) -> datetime | None:
    """A moment in unix milliseconds."""
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise InvalidArgument("start and cursor are numbers of milliseconds", code="invalid_query")
    return datetime.fromtimestamp(int(text) / 1000, UTC)


async def logs(ask: Ask) -> None:
    """The first that happened since a moment; a caller who follows asks again, from the last one on."""
    limit = shapes.page_size(ask.query.get("limit", ""), limits.EVENT_PAGE_MAX)
    since = _since(ask.query.get("start", ""))
    wanted = EventFilter(ask.principal.owner, (_ANY,), await _target(ask), since=since)
    found = await _events(ask, wanted, limit, oldest=True)
    await ask.answer(
        {"logs": [log_line(event) for event in found], "logEntries": [log_entry(event) for event in found]}
    )


async def logs_page(ask: Ask) -> None:
    """The same by page, in either direction from a moment, of a level or above, with a text in them."""
    limit = shapes.page_size(ask.query.get("limit", ""), limits.EVENT_PAGE_MAX)
    backward = ask.query.get("direction") == "backward"
    place = _since(ask.query.get("cursor", ""))
    since, until = (None, place) if backward else (place, None)
    wanted = EventFilter(ask.principal.owner, (_ANY,), await _target(ask), since=since, until=until)
    found = await _events(ask, wanted, limits.EVENT_PAGE_MAX, oldest=not backward)
    entries = chosen([log_entry(event) for event in found], ask.query.get("level", ""), ask.query.get("search", ""))
    await ask.answer({"logs": entries[::-1][:limit] if backward else entries[:limit]})


def chosen(entries: list[dict[str, Any]], level: str, search: str) -> list[dict[str, Any]]:
    """The entries of at least a level, with a text in their message; pure."""
    if level and level not in _LEVELS:
        raise InvalidArgument(f"level is one of {', '.join(_LEVELS)}", code="invalid_query")
    loud = _LEVELS[_LEVELS.index(level) :] if level else _LEVELS
    return [entry for entry in entries if entry["level"] in loud and search.lower() in entry["message"].lower()]


async def events(ask: Ask) -> None:
    """What happened in the lives of one sandbox, or of all: the newest first, unless it is wanted otherwise."""
    first = shapes.place_of(ask.query.get("offset") or None)
    limit = shapes.page_size(ask.query.get("limit", ""), _ITEMS_MAX)
    if first + limit > limits.EVENT_PAGE_MAX:
        raise InvalidArgument(f"a list ends after {limits.EVENT_PAGE_MAX} events", code="invalid_query")
    target = await _target(ask) if "sandbox" in ask.path else None
    oldest = ask.query.get("orderAsc") == "true"
    kinds = kinds_of(ask.words("types"))
    wanted = EventFilter(ask.principal.owner, actions_of(kinds), target)
    # What a type is shows only in the event itself, so the page is cut out of what there is.
    found = await _events(ask, wanted, limits.EVENT_PAGE_MAX, oldest=oldest)
    told = [lifecycle_event(event) for event in (found if oldest else reversed(found)) if kind_of(event) in kinds]
    await ask.answer(told[first : first + limit])


def kinds_of(types: list[str]) -> list[str]:
    """E2B's types that a query names; without any, all that there are; pure."""
    if set(types) - ACTIONS.keys():
        raise InvalidArgument(f"types are some of: {', '.join(ACTIONS)}", code="invalid_query")
    return types or list(ACTIONS)


def actions_of(kinds: Iterable[str]) -> tuple[str, ...]:
    """Our actions that tell of these kinds, each once; pure."""
    return tuple(dict.fromkeys(action for kind in kinds for action in ACTIONS[kind]))


OPERATIONS: Final = (
    Operation("GET", "/sandboxes/{sandbox}/logs", logs),
    Operation("GET", "/v2/sandboxes/{sandbox}/logs", logs_page),
    Operation("GET", "/events/sandboxes", events),
    Operation("GET", "/events/sandboxes/{sandbox}", events),
)
