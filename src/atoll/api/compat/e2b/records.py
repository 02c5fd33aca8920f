"""What happened to sandboxes, in E2B's words: logs and lifecycle events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from atoll.api.compat.e2b import sandboxes, shapes
from atoll.api.compat.e2b.ask import Ask, Operation
from atoll.control.events import EventFilter
from atoll.model import limits
from atoll.model.errors import InvalidArgument
from atoll.model.event import Event

_ITEMS_MAX: Final = 100
_ANY: Final = "sandbox.*"
_LEVELS: Final = ("debug", "info", "warn", "error")
KINDS: Final[Mapping[str, str]] = {
    "sandbox.creating": "sandbox.lifecycle.created",
    "sandbox.paused": "sandbox.lifecycle.paused",
    "sandbox.resuming": "sandbox.lifecycle.resumed",
    "sandbox.deadline": "sandbox.lifecycle.updated",
    "sandbox.killed": "sandbox.lifecycle.killed",
    "sandbox.failed": "sandbox.lifecycle.killed",
}


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


def lifecycle_event(event: Event) -> dict[str, Any] | None:
    kind = KINDS.get(event.action)
    if kind is None:
        return None
    return {
        "version": "v2",
        "id": str(event.number),
        "type": kind,
        "timestamp": shapes.moment(event.at),
        "sandboxId": event.target,
        "sandboxExecutionId": event.target,
        "sandboxTemplateId": event.detail.get("template", ""),
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
    wanted = EventFilter(ask.principal.owner, actions_of(ask.words("types")), target)
    found = await _events(ask, wanted, first + limit, oldest=oldest)
    told = [lifecycle_event(event) for event in (found if oldest else reversed(found))]
    await ask.answer([event for event in told if event is not None][first:])


def actions_of(types: list[str]) -> tuple[str, ...]:
    """Our actions for E2B's types, of which a query names some; without any, all that have a type; pure."""
    wanted = set(types)
    if wanted - set(KINDS.values()):
        raise InvalidArgument(f"types are some of: {', '.join(dict.fromkeys(KINDS.values()))}", code="invalid_query")
    return tuple(action for action, kind in KINDS.items() if kind in wanted or not wanted)


OPERATIONS: Final = (
    Operation("GET", "/sandboxes/{sandbox}/logs", logs),
    Operation("GET", "/v2/sandboxes/{sandbox}/logs", logs_page),
    Operation("GET", "/events/sandboxes", events),
    Operation("GET", "/events/sandboxes/{sandbox}", events),
)
