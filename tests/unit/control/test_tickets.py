"""Tickets: once, for one path, for a minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import anyio
import pytest

from atoll.control.authz import Principal
from atoll.control.tickets import Tickets
from atoll.model import limits
from atoll.model.errors import Unauthenticated

CALLER = Principal(owner="o", key_id="k", scopes=frozenset({"write"}))


class Clock:
    moment = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.moment

    def jumped(self) -> timedelta:
        return timedelta()

    async def wait_until(self, moment: datetime | None, changed: anyio.Event) -> None:
        raise AssertionError


def test_a_ticket_is_used_up() -> None:
    tickets = Tickets(Clock())
    ticket, _ = tickets.issue(CALLER, "/a")
    assert tickets.redeem(ticket, "/a") == CALLER
    for wrong in (ticket, "", "x"):
        with pytest.raises(Unauthenticated):
            tickets.redeem(wrong, "/a")


def test_not_elsewhere_not_later_and_not_too_many() -> None:
    clock = Clock()
    tickets = Tickets(clock)
    elsewhere, late = tickets.issue(CALLER, "/a")[0], tickets.issue(CALLER, "/a")[0]
    with pytest.raises(Unauthenticated):
        tickets.redeem(elsewhere, "/b")
    clock.moment += timedelta(seconds=limits.TICKET_S + 1)
    with pytest.raises(Unauthenticated):
        tickets.redeem(late, "/a")
    first = tickets.issue(CALLER, "/a")[0]
    for _ in range(limits.TICKETS_MAX):
        tickets.issue(CALLER, "/a")
    with pytest.raises(Unauthenticated):
        tickets.redeem(first, "/a")
