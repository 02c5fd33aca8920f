"""Callers who were not let in, in the audit log: by an old or unknown key, or because their rate is used up.

Such requests cost next to nothing, so there may be any number of them: those that are alike are told together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from atoll.control.authz import DEFAULT_OWNER
from atoll.control.events import Events
from atoll.control.tallies import Tally, TallyLog

ACTION = "request.refused"
UNKNOWN = "unknown"
"""The actor where nobody knows the key. The operator's own tenant is told of those."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What makes refusals alike: whose key, why, and from where."""

    code: str
    source: str
    owner: str = DEFAULT_OWNER
    actor: str = UNKNOWN

    @property
    def crowd(self) -> tuple[str, str]:
        return self.owner, self.code

    def of_any_source(self) -> Refusal:
        return Refusal(self.code, "", self.owner, "")


class RefusalLog(TallyLog[Refusal]):
    """Tells the audit log."""

    def __init__(self, events: Events) -> None:
        super().__init__(self._report)
        self._events = events

    def _report(self, refusal: Refusal, tally: Tally) -> None:
        event = self._events.of(
            None, ACTION, owner=refusal.owner, result=refusal.code, detail={"count": str(tally.count)}
        )
        self._events.report(replace(event, actor=refusal.actor, source=refusal.source))
