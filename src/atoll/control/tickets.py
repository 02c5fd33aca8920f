"""Tickets: they stand for a caller once, for a short time and for one path, where no header can be sent."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta

from atoll.control.authz import Principal
from atoll.control.clock import Clock
from atoll.model import limits
from atoll.model.errors import Unauthenticated


@dataclass(frozen=True, slots=True)
class _Place:
    principal: Principal
    path: str
    expires_at: datetime


class Tickets:
    """Those that were given out and not used yet; only their hashes, and only in memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._places: OrderedDict[str, _Place] = OrderedDict()

    def issue(self, principal: Principal, path: str) -> tuple[str, datetime]:
        ticket = secrets.token_urlsafe(32)
        expires_at = self._clock.now() + timedelta(seconds=limits.TICKET_S)
        self._places[_hash(ticket)] = _Place(principal, path, expires_at)
        while len(self._places) > limits.TICKETS_MAX:
            self._places.popitem(last=False)
        return ticket, expires_at

    def forget(self, key_id: str) -> None:
        """A key has ended: what stands for its bearer opens nothing."""
        for ticket in [ticket for ticket, place in self._places.items() if place.principal.key_id == key_id]:
            del self._places[ticket]

    def redeem(self, ticket: str, path: str) -> Principal:
        """Who it stands for. It is used up, also if it was for something else."""
        place = self._places.pop(_hash(ticket), None)
        if place is None or place.path != path or place.expires_at < self._clock.now():
            raise Unauthenticated(
                "the ticket is not valid", code="invalid_ticket", hint="A ticket opens one connection, within a minute."
            )
        return place.principal


def _hash(ticket: str) -> str:
    return hashlib.sha256(ticket.encode("utf-8", "surrogatepass")).hexdigest()
