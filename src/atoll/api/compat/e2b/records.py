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


async def _events(ask: Ask, target: str | None, since: datetime | None = None) -> list[Event]:
    wanted = EventFilter(ask.principal.owner, ("sandbox.*",), target, None, None, since, None)
    page = await ask.control.accounts.events.page(wanted, None, limits.EVENT_PAGE_MAX)
    return page.items


def _since(text: str) -> datetime | None:
    """A moment in unix milliseconds."""
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise InvalidArgument("start is a number of milliseconds", code="invalid_query")
    return datetime.fromtimestamp(int(text) / 1000, UTC)


async def logs(ask: Ask) -> None:
    sandbox = await sandboxes.find(ask)
    found = await _events(ask, sandbox.id, _since(ask.query.get("start", "")))
    await ask.answer(
        {"logs": [log_line(event) for event in found], "logEntries": [log_entry(event) for event in found]}
    )


async def logs_page(ask: Ask) -> None:
    sandbox = await sandboxes.find(ask)
    found = await _events(ask, sandbox.id, _since(ask.query.get("cursor", "")))
    if ask.query.get("direction") == "backward":
        found.reverse()
    await ask.answer({"logs": [log_entry(event) for event in found]})


async def events(ask: Ask) -> None:
    found = await _events(ask, ask.path.get("sandbox"))
    if ask.query.get("orderAsc") != "true":
        found.reverse()
    shown = [told for told in map(lifecycle_event, found) if told is not None]
    first = shapes.place_of(ask.query.get("offset") or None)
    await ask.answer(shown[first : first + shapes.page_size(ask.query.get("limit", ""), _ITEMS_MAX)])


OPERATIONS: Final = (
    Operation("GET", "/sandboxes/{sandbox}/logs", logs),
    Operation("GET", "/v2/sandboxes/{sandbox}/logs", logs_page),
    Operation("GET", "/events/sandboxes", events),
    Operation("GET", "/events/sandboxes/{sandbox}", events),
)
