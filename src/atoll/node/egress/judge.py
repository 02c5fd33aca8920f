"""Whether a connection may go on and to which address, from what DNS, TLS and HTTP say about it.

The name that was asked in DNS, the name in TLS and the one in HTTP must be the same. The address that is checked here
is the one that is dialled; the client's own idea of where a name leads counts only if we told it so, or if the name's
own servers say the same.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from atoll.model import limits
from atoll.model.policy import Compiled, Verdict, decide, name_may_resolve
from atoll.node.egress.addresses import Network, forbidden_reason, own_addresses
from atoll.node.egress.dns_message import NO_ERROR, NO_SUCH_NAME, REFUSED, Answer
from atoll.node.egress.gate import Gate
from atoll.node.egress.resolver import Resolver

_WEB_PORTS = (80, 443)
_FIB_TRIE = Path("/proc/net/fib_trie")


@dataclass(frozen=True, slots=True)
class Ruling:
    """What is decided about a connection: under which name, and to which address it goes.

    `proven` says that the name leads to that address, by its own servers, and is not only what the client says.
    """

    verdict: Verdict
    name: str = ""
    address: IPv4Address | None = None
    asked: bool = False
    proven: bool = False


class Bench:
    """What all judgements share: the operator's exceptions, this host's own addresses, and who knows names."""

    def __init__(self, resolver: Resolver, opened: tuple[Network, ...], closed: tuple[Network, ...] = ()) -> None:
        self._resolver = resolver
        self._opened = opened
        self._closed = closed
        self._own: frozenset[IPv4Address] = frozenset()
        self._own_read_s = 0.0
        self._known: dict[IPv4Address, str] = {}

    def forbidden(self, address: IPv4Address) -> str:
        """Why nobody may reach an address; empty if some may. What was found holds as long as the list it rests on."""
        now_s = time.monotonic()
        if not self._own or now_s - self._own_read_s > limits.HOST_ADDRESSES_S:
            self._own, self._own_read_s = own_addresses(_FIB_TRIE.read_text()), now_s
            self._known.clear()
        reason = self._known.get(address)
        if reason is None:
            reason = forbidden_reason(address, self._own, self._opened, self._closed)
            if len(self._known) < limits.PINS_MAX:
                self._known[address] = reason
        return reason

    async def lookup(self, gate: Gate, name: str) -> tuple[int, tuple[IPv4Address, ...], int]:
        """What a sandbox is told about a name: code, addresses, and for how long. Refused names leave nobody's door."""
        verdict = name_may_resolve(gate.order.rules, name)
        if verdict.unlisted and gate.order.rules.policy.ask:
            return NO_ERROR, (gate.pins.fake(name),), 1
        if not verdict.allowed:
            gate.note("lookup", name=name, reason=verdict.reason, rule=verdict.rule)
            return REFUSED, (), 0
        answer = await self._resolver.resolve(name)
        reachable = self._reachable(answer)
        gate.pins.add(name, reachable)
        if answer.addresses and not reachable:
            gate.note("lookup", name=name, address=str(answer.addresses[0]), reason="private_address")
            return NO_SUCH_NAME, (), 0
        return answer.code, reachable, answer.ttl_s

    def _reachable(self, answer: Answer) -> tuple[IPv4Address, ...]:
        """One address out of bounds spoils none of the others, but is itself never told."""
        return tuple(address for address in answer.addresses if not self.forbidden(address))

    async def rule(self, gate: Gate, target: IPv4Address, port: int, name: str, *, opaque: bool) -> Ruling:
        """Judge a connection. `name` is what TLS or HTTP said; `opaque` that nothing was said that we understand."""
        stand_in = gate.pins.fake_name(target)
        if stand_in:
            return await self._rule_stand_in(gate, stand_in, port, stand_in if opaque else name)
        reason = self.forbidden(target)
        if reason:
            return Ruling(Verdict(False, reason), name)
        if opaque and port not in _WEB_PORTS:
            name = _told(gate, target, port)
        ruling = await self._rule_address(gate.order.rules, gate, target, port, name)
        if ruling.verdict.unlisted and gate.order.rules.policy.ask:
            # Nobody was asked about the name, so the question is about the address.
            if await gate.ask(str(target), port):
                return Ruling(Verdict(True, "asked"), "", target, asked=True)
            return Ruling(Verdict(False, "ask_refused"), name)
        return ruling

    async def _rule_address(self, rules: Compiled, gate: Gate, target: IPv4Address, port: int, name: str) -> Ruling:
        verdict = decide(rules, name or None, target, port)
        if not verdict.allowed or not name:
            return Ruling(verdict, name, target)
        if name in gate.pins.names(target):
            return Ruling(verdict, name, target, proven=True)
        if not verdict.by_name and not rules.http_rules(name):
            return Ruling(verdict, name, target)  # nothing rests on the name
        if await self._leads_to(gate, name, target):
            return Ruling(verdict, name, target, proven=True)
        by_address = decide(rules, None, target, port)
        if by_address.allowed:
            return Ruling(by_address, name, target)
        return Ruling(Verdict(False, "name_mismatch", verdict.rule), name)

    async def _leads_to(self, gate: Gate, name: str, target: IPv4Address) -> bool:
        answer = await self._resolver.resolve(name)
        if target not in answer.addresses:
            return False
        gate.pins.add(name, (target,))
        return True

    async def _rule_stand_in(self, gate: Gate, name: str, port: int, said: str) -> Ruling:
        """A name that nobody looked up yet: first the word, then the look-up."""
        if said != name:
            return Ruling(Verdict(False, "name_mismatch"), said)
        verdict, asked = decide(gate.order.rules, name, None, port), False
        if verdict.unlisted and gate.order.rules.policy.ask:
            asked = await gate.ask(name, port)
            verdict = Verdict(True, "asked", by_name=True) if asked else Verdict(False, "ask_refused")
        if not verdict.allowed:
            return Ruling(verdict, name)
        answer = await self._resolver.resolve(name)
        if not answer.addresses:
            return Ruling(Verdict(False, "no_such_name", verdict.rule), name)
        for address in self._reachable(answer):
            if decide(gate.order.rules, name, address, port).reason != "denied":
                return Ruling(verdict, name, address, asked, proven=True)
        return Ruling(Verdict(False, "private_address", verdict.rule), name)

    async def test(self, gate: Gate, host: str, port: int) -> tuple[Verdict, tuple[IPv4Address, ...]]:
        """What would happen to a connection, without making one and without asking a person."""
        try:
            target = IPv4Address(host)
        except ValueError:
            return await self._test_name(gate, host, port)
        reason = self.forbidden(target)
        verdict = Verdict(False, reason) if reason else decide(gate.order.rules, None, target, port)
        return _or_asked(gate, verdict), (target,)

    async def _test_name(self, gate: Gate, name: str, port: int) -> tuple[Verdict, tuple[IPv4Address, ...]]:
        verdict = decide(gate.order.rules, name, None, port)
        if not verdict.allowed:
            return _or_asked(gate, verdict), ()
        answer = await self._resolver.resolve(name)
        if not answer.addresses:
            return Verdict(False, "no_such_name", verdict.rule), ()
        reachable = self._reachable(answer)
        if not reachable:
            return Verdict(False, "private_address", verdict.rule), answer.addresses
        return decide(gate.order.rules, name, reachable[0], port), reachable


def _or_asked(gate: Gate, verdict: Verdict) -> Verdict:
    """What nothing speaks for or against waits for a person, where one is to be asked."""
    return Verdict(False, "would_ask") if verdict.unlisted and gate.order.rules.policy.ask else verdict


def _told(gate: Gate, target: IPv4Address, port: int) -> str:
    """The name by which a client that says none must have found this address; one that may be reached, if any.

    Of those one without rules for requests, which such a client does not make.
    """
    rules, names = gate.order.rules, gate.pins.names(target)
    allowed = [name for name in names if decide(rules, name, target, port).allowed]
    return next(iter([name for name in allowed if not rules.http_rules(name)] or allowed or names), "")
