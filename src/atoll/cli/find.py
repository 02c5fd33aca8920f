"""Which sandbox is meant: its id, its name, or enough letters of the beginning or the end of its id."""

from __future__ import annotations

from collections.abc import Iterable

from atoll.client import Sandbox
from atoll.model.errors import Conflict, NotFound
from atoll.model.ids import SANDBOX, is_id
from atoll.model.lifecycle import LIVE

PART_CHARS_MIN = 4  # fewer match by accident


def match(part: str, ids: Iterable[str]) -> str | None:
    """The one id that begins or ends so; None if none does, Conflict if several do."""
    if len(part) < PART_CHARS_MIN:
        return None
    found = sorted({candidate for candidate in ids if candidate.startswith(part) or candidate.endswith(part)})
    if len(found) > 1:
        raise Conflict(
            f"{part!r} is part of {len(found)} ids",
            code="ambiguous_id",
            hint=f"Write more of it: {found[0]}, {found[1]}",
        )
    return found[0] if found else None


def find(text: str) -> Sandbox:
    """The sandbox that is meant, live ones first."""
    try:
        return Sandbox.connect(text)
    except NotFound:
        if is_id(SANDBOX, text):
            raise
        missing = NotFound(
            f"no sandbox {text!r}", code="sandbox_not_found", hint="`atoll sandbox ls --all` shows what there is."
        )
    found = match(text, (view.id for view in Sandbox.list(state=sorted(LIVE))))
    found = found or match(text, (view.id for view in Sandbox.list()))
    if found is None:
        raise missing
    return Sandbox.connect(found)
