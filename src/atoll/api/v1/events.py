"""/v1/events: the audit log, read from a place in it, and waited for."""

from __future__ import annotations

from datetime import datetime

import msgspec

from atoll.api.endpoint import Call, Endpoint, Nothing
from atoll.api.errors import ClientGone
from atoll.api.stream import until_disconnected
from atoll.control.authz import OPERATOR
from atoll.control.events import EventFilter, EventPage
from atoll.model.errors import Forbidden, InvalidArgument
from atoll.model.event import Event
from atoll.wire import public

DEFAULT_ITEMS = 100


class EventQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which events. Without `after`: the newest ones. With it: what follows, and `wait_s` waits for the first.

    `action` may be repeated and may end with `*`. `all_tenants` is for the operator.
    """

    after: int | None = None
    wait_s: float = 0.0
    limit: int = DEFAULT_ITEMS
    action: list[str] = []
    target: str | None = None
    actor: str | None = None
    result: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    all_tenants: bool = False


async def list_page(call: Call[Nothing, EventQuery]) -> public.EventPage:
    query = call.query
    if query.all_tenants:
        call.principal.check(OPERATOR)
    wanted = EventFilter(
        None if query.all_tenants else call.principal.owner,
        tuple(query.action),
        query.target,
        query.actor,
        query.result,
        aware(query.since),
        aware(query.until),
    )
    if query.after is not None and not 0 <= query.after < 2**63:
        raise InvalidArgument("after is not a place in the log", code="invalid_query")
    found: list[EventPage] = []

    async def read() -> None:
        found.append(await call.control.accounts.events.page(wanted, query.after, query.limit, query.wait_s))

    # A caller who leaves while it waits is not waited for.
    await until_disconnected(call.receive, read)
    if not found:
        raise ClientGone
    (page,) = found
    return public.EventPage(items=[_view(event) for event in page.items], next=page.next)


def aware(moment: datetime | None) -> datetime | None:
    """A moment with its time zone."""
    if moment is not None and moment.tzinfo is None:
        raise InvalidArgument("a time has no time zone", code="invalid_query", hint="End it with Z for UTC.")
    return moment


def _view(event: Event) -> public.EventView:
    return public.EventView(
        number=event.number,
        at=event.at,
        tenant=event.owner,
        actor=event.actor,
        action=event.action,
        target=event.target,
        result=event.result,
        source=event.source,
        request_id=event.request_id,
        detail=dict(event.detail),
    )


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/events",
        "Read the audit log, or wait for what comes next",
        list_page,
        query=EventQuery,
        answer=public.EventPage,
        errors=(InvalidArgument, Forbidden),
    ),
)
