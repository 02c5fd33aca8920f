"""Visits to ports in the audit log: told together where they are alike, with their number and their bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from atoll.control.events import Events
from atoll.control.tallies import Tally, TallyLog
from atoll.model.event import SYSTEM

ACTION = "ingress.connection"


@dataclass(frozen=True, slots=True)
class Kind:
    """What makes visits alike: whose door, how it was opened or why not, and from where."""

    owner: str
    sandbox_id: str
    port: int
    result: str
    by: str = ""
    key_id: str = ""
    source: str = ""
    protocol: str = ""

    @property
    def crowd(self) -> str:
        return self.sandbox_id

    def of_any_source(self) -> Kind:
        return Kind(self.owner, self.sandbox_id, 0, self.result)


class VisitLog(TallyLog[Kind]):
    """Tells the audit log."""

    def __init__(self, events: Events) -> None:
        super().__init__(self._report)
        self._events = events

    def _report(self, kind: Kind, tally: Tally) -> None:
        detail = {
            "port": str(kind.port or ""),
            "by": kind.by,
            "protocol": kind.protocol,
            "count": str(tally.count),
            "bytes_in": str(tally.bytes_in or ""),
            "bytes_out": str(tally.bytes_out or ""),
            "longest_s": str(round(tally.longest_s, 3) or ""),
        }
        event = self._events.of(
            None, ACTION, owner=kind.owner, target=kind.sandbox_id, result=kind.result, detail=detail
        )
        self._events.report(replace(event, actor=kind.key_id or SYSTEM, source=kind.source))
