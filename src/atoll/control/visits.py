"""Visits: connections through ports of sandboxes, from the moment somebody was let in until they end or are cut.

There is a bound on how many a sandbox, an owner and the server have at a time. Each ends in the audit log of the
sandbox's owner, and so does each that was not let in; one that lasts is there before.

A link has an end. An answer that was begun before goes on for a while, as a download does anywhere; a connection that
was upgraded, which could last for ever, ends with the link. How long that is off is measured when the visit begins, by
the clock that nobody sets.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

from atoll.control.underway import Underway
from atoll.control.visitlog import Kind, VisitLog
from atoll.model import limits
from atoll.model.errors import AtollError, Forbidden, LimitExceeded
from atoll.model.event import BEGUN, OK
from atoll.model.port import PortAccess

CUT = "access_changed"


@dataclass(frozen=True, slots=True)
class Knock:
    """Someone at a port: an API key, a token of the port, or neither."""

    sandbox_id: str
    port: int
    key: str = ""
    token: str = ""
    source: str = ""
    """The address that the caller comes from."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Why somebody may go through a port: it is `public`, or a `link`, a `token` of the sandbox or a `key` opens it."""

    knock: Knock
    owner: str
    access: PortAccess
    by: str
    key_id: str = ""


@dataclass(eq=False, slots=True)
class Visit:
    """One connection, and what has passed through it."""

    admission: Admission
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    begun_s: float = field(default_factory=time.monotonic)
    protocol: str = "http"
    bytes_in: int = 0
    bytes_out: int = 0
    link_ends_s: float = math.inf
    """When the link that opened it does, by the loop's clock."""
    was_cut: bool = False

    def cut(self) -> None:
        """End it now, whatever it is doing."""
        self.was_cut = True
        self.scope.cancel()

    def upgraded(self) -> None:
        """From now on it is no answer, which comes to an end by itself."""
        self.protocol = "upgrade"
        self.scope.deadline = self.link_ends_s


class Visits:
    """All of one server."""

    def __init__(self, log: VisitLog, underway: Underway) -> None:
        self.log = log
        self._underway = underway
        self._open: defaultdict[str, set[Visit]] = defaultdict(set)
        self._of_owner: Counter[str] = Counter()
        self._total = 0

    def of(self, sandbox_id: str) -> list[Visit]:
        """Those that are open."""
        return list(self._open.get(sandbox_id, ()))

    def by_key(self, key_id: str) -> list[Visit]:
        """Those that are open because of one API key."""
        return [visit for visits in self._open.values() for visit in visits if visit.admission.key_id == key_id]

    @contextmanager
    def begin(self, admission: Admission, link_left_s: float = math.inf) -> Iterator[Visit]:
        """A visit while the block lasts; Forbidden if it was cut (access_changed), or outlasted its link."""
        visit = Visit(admission, link_ends_s=anyio.current_time() + link_left_s)
        visit.scope.deadline = visit.link_ends_s + limits.INGRESS_ANSWER_AFTER_LINK_S
        result = OK
        lasting = self._underway.begin(lambda: self._note(visit, BEGUN))
        try:
            with self._placed(visit):
                with visit.scope:
                    yield visit
                if visit.scope.cancelled_caught and not visit.was_cut:
                    raise Forbidden("the link expired while a connection was open by it", code="port_link_refused")
                if visit.scope.cancelled_caught:
                    raise Forbidden("who may reach this port was changed", code=CUT)
        except AtollError as error:
            result = error.code
            raise
        finally:
            self._underway.end(lasting)
            self._note(visit, result)

    @contextmanager
    def _placed(self, visit: Visit) -> Iterator[None]:
        sandbox_id, owner = visit.admission.knock.sandbox_id, visit.admission.owner
        self._check_room(sandbox_id, owner)
        self._open[sandbox_id].add(visit)
        self._of_owner[owner] += 1
        self._total += 1
        try:
            yield
        finally:
            self._total -= 1
            self._of_owner[owner] -= 1
            if not self._of_owner[owner]:
                del self._of_owner[owner]
            self._open[sandbox_id].discard(visit)
            if not self._open[sandbox_id]:
                del self._open[sandbox_id]

    def _check_room(self, sandbox_id: str, owner: str) -> None:
        """The fewer places are free the fewer one owner may have, so that some are left for whoever comes next."""
        free = limits.INGRESS_CONNECTIONS_MAX - self._total
        if free <= 0:
            raise LimitExceeded("the server has too many connections to ports", code="too_many_connections")
        if self._of_owner.get(owner, 0) >= limits.INGRESS_OWNER_TIMES_FREE * free:
            raise LimitExceeded("the owner has too many connections to ports", code="too_many_connections")
        if len(self._open.get(sandbox_id, ())) >= limits.INGRESS_CONNECTIONS_PER_SANDBOX_MAX:
            raise LimitExceeded("the sandbox has too many connections to its ports", code="too_many_connections")

    def refused(self, owner: str, knock: Knock, code: str) -> None:
        """Somebody was not let in."""
        self.log.note(Kind(owner, knock.sandbox_id, knock.port, code, source=knock.source))

    def _note(self, visit: Visit, result: str) -> None:
        admission = visit.admission
        kind = Kind(
            owner=admission.owner,
            sandbox_id=admission.knock.sandbox_id,
            port=admission.knock.port,
            result=result,
            by=admission.by,
            key_id=admission.key_id,
            source=admission.knock.source,
            protocol=visit.protocol,
        )
        if result == BEGUN:  # its bytes and its time are told at its end
            self.log.note(kind)
            return
        duration_s = time.monotonic() - visit.begun_s
        self.log.note(kind, bytes_in=visit.bytes_in, bytes_out=visit.bytes_out, duration_s=duration_s)
