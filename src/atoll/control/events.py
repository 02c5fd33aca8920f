"""The audit log: written, read, waited for, copied to a file, and forgotten when it is old.

What changes a sandbox, a key or a tenant is written in the transaction that changes it. That a request was made is
written a moment later, many requests in one transaction: a server that is killed may lose the last moment of those.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import anyio
import anyio.to_thread
import structlog

from atoll.control.authz import Principal
from atoll.control.clock import Clock
from atoll.control.store import events as rows
from atoll.control.store.engine import Store
from atoll.control.store.events import EventFilter as EventFilter
from atoll.model import limits
from atoll.model.errors import InvalidArgument
from atoll.model.event import OK, SYSTEM, Event
from atoll.model.text import cleaned, is_text
from atoll.telemetry import Metrics

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class EventPage:
    """Some events, oldest first, and the place in the log after them."""

    items: list[Event]
    next: int


class Events:
    """The log of one server, or of several that share a database."""

    def __init__(self, store: Store, clock: Clock, metrics: Metrics) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._queue: deque[Event] = deque()
        self._queued_of: Counter[str] = Counter()
        """How many of each tenant, those included that are just being written."""
        self._queued = anyio.Event()
        self._added = anyio.Event()

    def of(
        self,
        by: Principal | None,
        action: str,
        *,
        owner: str = "",
        target: str = "",
        result: str = OK,
        detail: dict[str, str] | None = None,
    ) -> Event:
        """An event that happens now; without a caller it is the system's own doing."""
        kept = {key: cleaned(value, limits.EVENT_DETAIL_CHARS_MAX) for key, value in (detail or {}).items() if value}
        return Event(
            at=self._clock.now(),
            owner=owner or (by.owner if by else ""),
            actor=by.actor if by else SYSTEM,
            action=action,
            target=cleaned(target, limits.EXTERNAL_ID_CHARS_MAX),
            result=result,
            source=by.source if by else "",
            request_id=by.request_id if by else "",
            detail=kept,
        )

    def written(self) -> None:
        """Events have been committed: whoever waits for some may look."""
        self._added.set()
        self._added = anyio.Event()

    def next_added(self) -> anyio.Event:
        """Set when events have been written after this call."""
        return self._added

    def note(self, by: Principal, action: str, target: str, result: str, detail: dict[str, str] | None = None) -> None:
        """Have a request written soon."""
        self.report(self.of(by, action, target=target, result=result, detail=detail))

    def report(self, event: Event) -> None:
        """Have something that happened written soon.

        The log must not take the server's memory with it while the database is away; and the fewer places are free the
        fewer one tenant may have, so that some are left for the others.
        """
        free = limits.EVENT_QUEUE_MAX - len(self._queue)
        if self._queued_of[event.owner] >= limits.EVENT_OWNER_TIMES_FREE * free:
            self._metrics.events_lost.inc()
            return
        self._queue.append(event)
        self._queued_of[event.owner] += 1
        self._queued.set()

    async def flush(self) -> None:
        """Write what is queued."""
        while self._queue:
            # Taken out first: at a stop somebody else may flush while this is being written, and none is written twice.
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), limits.EVENT_PAGE_MAX))]
            try:
                await self._store.write(rows.add_many, batch)
            except Exception:
                self._queue.extendleft(reversed(batch))
                raise
            self._queued_of -= Counter(event.owner for event in batch)  # which forgets those that have none left
            self.written()

    async def flush_step(self) -> None:
        """Wait for something to write, collect for a moment, write it."""
        while not self._queue:  # what could not be written the last time is there still
            self._queued = anyio.Event()
            await self._queued.wait()
        await anyio.sleep(limits.EVENT_FLUSH_S)
        await self.flush()

    async def page(self, wanted: EventFilter, after: int | None, items_max: int, wait_s: float = 0.0) -> EventPage:
        """Events after a place in the log, or the newest ones; waits for the first for so long if there is none."""
        _check(wanted, items_max, wait_s)
        if after is None:
            items = await self._store.read(rows.latest, wanted, items_max)
            return EventPage(items, items[-1].number if items else await self._store.read(rows.last_number))
        with anyio.move_on_after(wait_s):
            await self._wait_after(wanted, after)
        items = await self._store.read(rows.after, wanted, after, items_max)
        return EventPage(items, items[-1].number if items else after)

    async def _wait_after(self, wanted: EventFilter, after: int) -> None:
        while True:
            added = self.next_added()
            if await self._store.read(rows.after, wanted, after, 1):
                return
            with anyio.move_on_after(limits.EVENT_LOOK_S):
                await added.wait()

    async def common(self, copied: list[tuple[int, str]]) -> int:
        """The last of these entries, by number and time, that the log has as well, or has forgotten.

        One that was put back from a backup goes on with numbers that a copy has seen under other entries.
        """
        oldest = await self._store.read(rows.first_number)
        for number, at in reversed(copied):
            known = await self._store.read(rows.by_number, number)
            if number < oldest or (known is not None and known.at.isoformat() == at):
                return number
        if copied:
            log.warning("events_copied_again", reason="the log has nothing in common with the end of its copy")
        return 0

    async def forget(self, keep_days: float) -> None:
        """Remove what is older than the operator wants to keep."""
        gone = await self._store.write(rows.forget, self._clock.now() - timedelta(days=keep_days))
        if gone:
            log.info("events_forgotten", count=gone)


def as_json(event: Event) -> dict[str, Any]:
    """An event as programs read it."""
    return {
        "number": event.number,
        "at": event.at.isoformat(),
        "tenant": event.owner,
        "actor": event.actor,
        "action": event.action,
        "target": event.target,
        "result": event.result,
        "source": event.source,
        "request_id": event.request_id,
        "detail": dict(event.detail),
    }


def _check(wanted: EventFilter, items_max: int, wait_s: float) -> None:
    if not 1 <= items_max <= limits.EVENT_PAGE_MAX:
        raise InvalidArgument(f"limit is not between 1 and {limits.EVENT_PAGE_MAX}", code="invalid_query")
    if not 0 <= wait_s <= limits.EVENT_WAIT_S_MAX:
        raise InvalidArgument(f"wait_s is not between 0 and {limits.EVENT_WAIT_S_MAX:g}", code="invalid_query")
    texts = (*wanted.actions, wanted.target or "", wanted.actor or "", wanted.result or "")
    if not all(is_text(text) and len(text) <= limits.EXTERNAL_ID_CHARS_MAX for text in texts):
        raise InvalidArgument("a filter is no text, or too long", code="invalid_query")
