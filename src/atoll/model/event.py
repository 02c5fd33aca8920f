"""Events: who did what to what, from where, with which result; and the words for what happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

OK = "ok"
BEGUN = "begun"
"""The result of what lasts and has not ended."""
SYSTEM = "system"
"""The actor of what no caller asked for: a deadline, a death, a budget."""


class Shown(StrEnum):
    """What a caller has shown who has shown no key: the actor, then."""

    SANDBOX = "sandbox_token"
    VOLUME = "volume_token"
    ADDRESS = "signed_address"
    """One that a token of a sandbox has signed; an address that was made with a key counts as that key."""
    NOTHING = "public"
    """Somebody who may do it because the sandbox's ports are public."""


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of the audit log. `number` is its place in it: greater means later; 0 is not written yet."""

    at: datetime
    owner: str
    actor: str
    action: str
    target: str = ""
    result: str = OK
    source: str = ""
    request_id: str = ""
    detail: Mapping[str, str] = field(default_factory=dict)
    number: int = 0


def matches(action: str, wanted: tuple[str, ...]) -> bool:
    """Whether an action is one of those wanted: by its whole name, or by `sandbox.*`; nothing wanted is everything."""
    return not wanted or any(
        action == pattern or (pattern.endswith("*") and action.startswith(pattern[:-1])) for pattern in wanted
    )
