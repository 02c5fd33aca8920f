"""The gate of one sandbox: its rules, what it was told by DNS, its open connections, its counters and its events.

Rules are replaced as one value, so there is no moment without any. A connection that the new rules would not allow is
cut at once. A gate that nobody has given rules lets nothing through.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import IPv4Address
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from atoll.model import limits
from atoll.model.errors import NotFound
from atoll.model.policy import Mode, Verdict, decide
from atoll.model.secret import Grant
from atoll.node.egress.allowance import Allowance
from atoll.node.egress.places import Places
from atoll.node.egress.rate import Rate
from atoll.node.egress.sniff import Kind
from atoll.node.egress.traffic import Traffic
from atoll.node.egress.underway import Underway
from atoll.wire.network import Ask, NetworkEvent, NetworkOrder, NetworkStatus

_FAKE_FIRST = int(IPv4Address("198.18.0.1"))
_UNFINISHED = Verdict(False, "unfinished")
_PIECES_PER_TURN = 8
_TURN_BYTES = 32 * limits.KIB


@dataclass(eq=False)
class Flow:
    """One connection on its way through."""

    address: IPv4Address
    port: int
    scope: anyio.CancelScope
    begun_s: float
    name: str = ""
    proven: bool = False
    """The name leads to the address, and is not only what the client says."""
    protocol: str = ""
    verdict: Verdict = _UNFINISHED
    asked: bool = False
    in_judgement: bool = False
    """Nothing of it has passed yet, and nothing will before it is judged by the rules of that moment."""
    looked_inside: bool = False
    underway: dict[int, Underway] = field(default_factory=dict)
    """What was asked on it, where we look inside, and has not ended; by stream where there are streams."""
    cut_reason: str = ""
    answered: bool = False
    """The client was told why in its own protocol, so it is not cut off before it has read that."""
    owner: str = ""
    places: int = 0
    """How many it has taken, and from whose share."""
    bytes_up: int = 0
    bytes_down: int = 0
    pieces: int = 0

    def cut(self, reason: str) -> None:
        """End it. What is on its way when this is said does not pass any more."""
        self.cut_reason = reason
        self.scope.cancel()


class Pins:
    """Which names a sandbox was told lead to an address, and the stand-ins for names that a person must allow first."""

    def __init__(self) -> None:
        self._names: OrderedDict[IPv4Address, dict[str, None]] = OrderedDict()
        self._fakes: OrderedDict[str, IPv4Address] = OrderedDict()
        self._fake_names: dict[IPv4Address, str] = {}
        self._next = 0

    def add(self, name: str, addresses: tuple[IPv4Address, ...]) -> None:
        for address in addresses:
            self._names.setdefault(address, {})[name] = None
            self._names.move_to_end(address)
            if len(self._names[address]) > limits.DNS_ANSWERS_MAX * 4:
                self._names[address].pop(next(iter(self._names[address])))
        while len(self._names) > limits.PINS_MAX:
            self._names.popitem(last=False)

    def names(self, address: IPv4Address) -> list[str]:
        return list(self._names.get(address, ()))

    def fake(self, name: str) -> IPv4Address:
        """An address that stands for a name nobody has looked up; it belongs to no machine."""
        found = self._fakes.get(name)
        if found is None:
            if len(self._fakes) >= limits.FAKE_ADDRESSES_MAX:
                _, oldest = self._fakes.popitem(last=False)
                del self._fake_names[oldest]
            # Numbers go round the whole range, so that one which was given up comes back as late as possible.
            found = IPv4Address(_FAKE_FIRST + self._next % 65000)
            self._next += 1
            self._fakes[name] = found
            self._fake_names[found] = name
        return found

    def fake_name(self, address: IPv4Address) -> str:
        return self._fake_names.get(address, "")


@dataclass
class _Question:
    ask: Ask
    answered: anyio.Event = field(default_factory=anyio.Event)
    allowed: bool = False


class Gate:
    """All that decides about one sandbox's network."""

    def __init__(
        self,
        sandbox_id: str,
        report: Callable[[str, NetworkEvent], None],
        traffic: Traffic | None = None,
        places: Places | None = None,
    ) -> None:
        self.sandbox_id = sandbox_id
        self.order = NetworkOrder()
        self.pins = Pins()
        self.flows: set[Flow] = set()
        self.traffic = traffic or Traffic()
        self._places = places or Places()
        self._report = report
        self.rate = Rate()
        self._events: deque[NetworkEvent] = deque(maxlen=limits.CONNECTION_EVENTS_MAX)
        self._events_total = 0
        self._allowance = Allowance()
        self._connections_total = 0
        self._refused_total = 0
        self._questions: dict[str, _Question] = {}

    def apply(self, order: NetworkOrder) -> None:
        """New rules, at once. What they do not allow any more ends here.

        A connection that is still being judged has passed nothing: it is judged by what holds in the end, so that a
        change, such as a person's word on another one, does not end those that wait for theirs.
        """
        self.order = order
        if not order.rules.policy.ask:
            for question in self._questions.values():
                question.answered.set()  # nobody is asked any more, so nobody needs to wait
        for flow in list(self.flows):
            reason = "" if flow.in_judgement else self._objection(flow)
            if reason:
                flow.cut(reason)
            else:
                self._end_refused(flow)
        self.rate.set(order.rules.policy.rate_bytes_per_s)

    def _end_refused(self, flow: Flow) -> None:
        """Of a connection that may stay end what is under way on it and may not."""
        rules = self.order.rules.http_rules(flow.name) if flow.name else []
        for request in list(flow.underway.values()):
            if not request.is_allowed(rules):
                request.end()

    def still_allows(self, flow: Flow) -> bool:
        """Whether what was said of a connection holds by the rules of this moment."""
        verdict = self._verdict(flow)
        return verdict.allowed or (flow.asked and verdict.unlisted and self.order.rules.policy.ask)

    def _verdict(self, flow: Flow) -> Verdict:
        """What the rules say of it; a name that is only claimed opens nothing, though it may close."""
        rules = self.order.rules
        verdict = decide(rules, flow.name or None, flow.address, flow.port)
        return decide(rules, None, flow.address, flow.port) if verdict.by_name and not flow.proven else verdict

    def _objection(self, flow: Flow) -> str:
        if not self.still_allows(flow) or self.rests_on_a_claim(flow):
            return "policy_changed"
        if not flow.looked_inside and self._must_be_looked_at(flow):
            return "policy_changed"
        if self.over_cap():
            return "bytes_cap"
        return ""

    def _must_be_looked_at(self, flow: Flow) -> bool:
        if flow.protocol == Kind.TLS.value:
            return self.must_look(flow.name, flow.port)
        if self.must_be_http(flow):
            return True
        return flow.protocol in (Kind.HTTP.value, Kind.HTTP2.value) and self.judges_requests(flow)

    def judges_requests(self, flow: Flow) -> bool:
        """Whether what is asked on a connection could matter, and not only where it leads."""
        by_name = flow.verdict.by_name or self._verdict(flow).by_name
        return by_name or self.order.rules.looks_at_names or self.order.looks_inside

    def must_be_http(self, flow: Flow) -> bool:
        """Whether nothing but requests may pass: rules bound what may be asked of a host, and speak of nothing else."""
        opaque = flow.protocol in (Kind.OTHER.value, Kind.MORE.value)
        return opaque and bool(flow.name) and bool(self.order.rules.http_rules(flow.name))

    def rests_on_a_claim(self, flow: Flow) -> bool:
        """Whether rules for a host would be applied in plain to whoever was dialled under its name.

        What such a rule puts into a request is for that host alone.
        """
        in_plain = flow.protocol == Kind.HTTP.value and not flow.proven
        return in_plain and bool(self.order.rules.http_rules(flow.name))

    def must_look(self, name: str, port: int) -> bool:
        """Whether TLS to a name must end at the proxy."""
        rules = self.order.rules
        return bool(name) and (
            rules.policy.inspect or bool(rules.http_rules(name)) or bool(self.grants_for(name, port))
        )

    def grants_for(self, name: str, port: int) -> list[Grant]:
        return [grant for grant in self.order.grants if grant.bound_to(name, port)]

    def refuse_early(self) -> str:
        """Why no connection at all is taken now; empty if one may be tried."""
        if self.order.rules.policy.mode is Mode.NOTHING:
            return "network_off"
        if len(self.flows) >= self.order.rules.policy.connections_max:
            return "connections_max"
        if not self._places.has(self.order.owner):
            return "too_many_connections"
        return "bytes_cap" if self.over_cap() else ""

    def over_cap(self) -> bool:
        """Whether all bytes that may move have moved."""
        cap = self.order.rules.policy.bytes_max
        return cap is not None and self.traffic.total >= cap

    def count(self, flow: Flow, *, up: int = 0, down: int = 0) -> float:
        """Count bytes before they go on; how many seconds they wait where a rate is set. A cap ends all."""
        flow.bytes_up += up
        flow.bytes_down += down
        return self.count_any(up=up, down=down)

    def count_any(self, *, up: int = 0, down: int = 0) -> float:
        """The same of what belongs to no connection, such as a question to DNS and its answer."""
        self.traffic.add(up=up, down=down)
        if self.over_cap():
            for flow in self.flows:
                flow.cut("bytes_cap")
        return self.rate.take(up + down)

    async def moved(self, flow: Flow, *, up: int = 0, down: int = 0) -> None:
        """As `count`, for a task, which waits; one whose connection is cut ends here."""
        wait_s = self.count(flow, up=up, down=down)
        # A socket that is always ready never waits: here others get their turn, and a cut arrives. A turn of the loop
        # is not free, so small pieces, of which most connections consist, take one for several.
        flow.pieces += 1
        if flow.cut_reason or flow.pieces % _PIECES_PER_TURN == 0 or up + down >= _TURN_BYTES:
            await checkpoint()
        if wait_s > 0:
            await self.rate.rest(wait_s, up + down)

    # --- a person's word ---

    async def ask(self, host: str, port: int) -> bool:
        """Hold until somebody says what to do; no answer in time is a refusal, and so is too many questions."""
        for question in self._questions.values():
            if (question.ask.host, question.ask.port) == (host, port):
                return await self._await(question)
        if len(self._questions) >= limits.ASKS_OPEN_MAX:
            return False
        question = _Question(Ask(secrets.token_hex(8), host, port, datetime.now(UTC)))
        self._questions[question.ask.id] = question
        self.note("ask", name=host, port=port, request=question.ask.id)
        try:
            return await self._await(question)
        finally:
            self._questions.pop(question.ask.id, None)
            question.answered.set()

    async def _await(self, question: _Question) -> bool:
        with anyio.move_on_after(self.order.rules.policy.ask_s):
            await question.answered.wait()
        return question.allowed

    def answer(self, ask_id: str, allowed: bool) -> Ask:
        question = self._questions.get(ask_id)
        if question is None:
            raise NotFound("this question is not open any more", code="ask_not_found")
        question.allowed = allowed
        question.answered.set()
        return question.ask

    # --- what happened ---

    def opened(self, flow: Flow) -> None:
        self.flows.add(flow)
        self._connections_total += 1
        flow.owner = self.order.owner
        self._take_places(flow, 1)

    def may_cost(self, flow: Flow, places: int) -> bool:
        """Whether there are so many places for a connection that costs more than it did; if so it has them now."""
        more = places - flow.places
        if not self._places.has(flow.owner, more):
            return False
        self._take_places(flow, more)
        return True

    def _take_places(self, flow: Flow, count: int) -> None:
        self._places.take(flow.owner, count)
        flow.places += count

    def ended(self, flow: Flow) -> None:
        self.flows.discard(flow)
        self._take_places(flow, -flow.places)
        verdict = flow.verdict
        allowed = verdict.allowed and not flow.cut_reason
        if not allowed:
            self._refused_total += 1
        self.note(
            "connection",
            name=flow.name,
            address=str(flow.address),
            port=flow.port,
            protocol=flow.protocol,
            allowed=allowed,
            reason=flow.cut_reason or verdict.reason,
            rule=verdict.rule,
            bytes_up=flow.bytes_up,
            bytes_down=flow.bytes_down,
            duration_s=round(time.monotonic() - flow.begun_s, 3),
        )

    def turned_away(self, address: IPv4Address, port: int, reason: str) -> None:
        """A connection that was not even looked at."""
        self._refused_total += 1
        self._connections_total += 1
        self.note("connection", address=str(address), port=port, reason=reason)

    def note(self, kind: str, **values: Any) -> None:
        self._events_total += 1
        event = NetworkEvent(number=self._events_total, at=datetime.now(UTC), kind=kind, **values)
        self._events.append(event)
        self._tell(self._allowance.take(event))

    def settle(self, *, ended: bool = False) -> None:
        """Tell of what was not told one by one, if its minute is over."""
        self._tell(self._allowance.settle(self._events_total, datetime.now(UTC), ended=ended))

    def _tell(self, events: list[NetworkEvent]) -> None:
        for event in events:
            self._report(self.sandbox_id, event)

    def status(self, after: int) -> NetworkStatus:
        return NetworkStatus(
            bytes_up=self.traffic.bytes_up,
            bytes_down=self.traffic.bytes_down,
            connections_open=len(self.flows),
            connections_total=self._connections_total,
            refused_total=self._refused_total,
            asks=tuple(question.ask for question in self._questions.values()),
            events=tuple(event for event in self._events if event.number > after),
        )
