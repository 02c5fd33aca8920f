"""What a sandbox may reach: rules as people write them, compiled, and the one function that decides.

A rule is a place and, after a colon, ports:

    example.org           this name, on ports 80 and 443
    *.example.org:443     every name below it (not itself), on one port
    192.0.2.0/24:8000-8100
    192.0.2.7:*           an address, on all ports; an address without ports means all of them too
    @packages             a list that the operator has written in the configuration

Order of decision: an address that nobody may reach, then `deny`, then `allow`, then the mode. Nothing matches: refused,
or a person is asked. Names are compared in lower case, without a final dot, as they travel (punycode).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from atoll.model import limits
from atoll.model.errors import InvalidArgument

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_METHOD = re.compile(r"[A-Z]{1,32}")
_LIST = re.compile(r"@[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_ENCODED_PERCENT = re.compile("%(?:25)+")
_WEB_PORTS = ((80, 80), (443, 443))
_ALL_PORTS = ((1, 65535),)

Address = ipaddress.IPv4Address
Network = ipaddress.IPv4Network
PortRanges = tuple[tuple[int, int], ...]


class Mode(StrEnum):
    """What is reached without a rule that allows it."""

    NOTHING = "nothing"  # and with one neither: the network is off
    LISTED = "listed"
    PUBLIC = "public"  # what is not private, link-local, metadata or the host's own


@dataclass(frozen=True, slots=True)
class HttpRule:
    """What may be asked of a host, and what is changed in the asking. One rule for a host closes all the others."""

    host: str
    methods: tuple[str, ...] = ()
    path_prefixes: tuple[str, ...] = ()
    set_headers: Mapping[str, str] = field(default_factory=dict)
    remove_headers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """What a sandbox may reach, as its owner wrote it. The default reaches nothing."""

    mode: Mode = Mode.LISTED
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    http: tuple[HttpRule, ...] = ()
    ask: bool = False
    ask_s: float = 60.0
    inspect: bool = False
    bytes_max: int | None = None
    rate_bytes_per_s: int | None = None
    connections_max: int = limits.EGRESS_CONNECTIONS_DEFAULT

    def without_values(self) -> Policy:
        """As who may only read is shown it: the headers that it sets by name, because their values may open things."""
        http = [replace(rule, set_headers=dict.fromkeys(rule.set_headers, "")) for rule in self.http]
        return replace(self, http=tuple(http))


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, compiled: a name, all names below a suffix, or a network; and ports."""

    text: str
    ports: PortRanges
    name: str = ""
    suffix: str = ""
    network: Network | None = None

    def matches(self, name: str | None, address: Address | None, port: int | None) -> bool:
        if port is not None and not any(low <= port <= high for low, high in self.ports):
            return False
        if self.network is not None:
            return address is not None and address in self.network
        if name is None:
            return False
        return name == self.name if self.name else name.endswith(self.suffix)

    @property
    def written(self) -> str:
        """The rule in full: its place, and the ports that it means."""
        place = self.name or (f"*{self.suffix}" if self.suffix else str(self.network).removesuffix("/32"))
        if self.ports == _ALL_PORTS:
            return f"{place}:*"
        return f"{place}:" + ",".join(str(low) if low == high else f"{low}-{high}" for low, high in self.ports)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is decided and by which rule. `by_name` says that the decision rests on the name alone."""

    allowed: bool
    reason: str
    rule: str = ""
    by_name: bool = False

    @property
    def unlisted(self) -> bool:
        """Nothing speaks for it or against it: a person may be asked."""
        return self.reason == "not_listed"


@dataclass(frozen=True, slots=True)
class Compiled:
    """A policy ready to decide."""

    policy: Policy
    allow: tuple[Rule, ...]
    deny: tuple[Rule, ...]
    http: tuple[tuple[Rule, HttpRule], ...]

    def http_rules(self, name: str) -> list[HttpRule]:
        return [rule for match, rule in self.http if match.matches(name, None, None)]

    @property
    def looks_at_names(self) -> bool:
        """Whether a name could change a decision that the address alone allows."""
        return bool(self.http) or any(rule.network is None for rule in self.deny)


def compile_policy(policy: Policy, lists: Mapping[str, Sequence[str]]) -> Compiled:
    """A policy with its lists put in; InvalidArgument (invalid_policy) for anything that is not clear."""
    check(policy)
    allow = tuple(rule for text in policy.allow for rule in _rules(text, lists, deny=False))
    deny = tuple(rule for text in policy.deny for rule in _rules(text, lists, deny=True))
    http = tuple((_http_match(rule), rule) for rule in policy.http)
    return Compiled(policy, allow, deny, http)


NOTHING = Compiled(Policy(mode=Mode.NOTHING), (), (), ())


def decide(compiled: Compiled, name: str | None, address: Address | None, port: int | None) -> Verdict:
    """Whether a place may be reached. What is None is not known yet and matches every rule that could still match."""
    if compiled.policy.mode is Mode.NOTHING:
        return Verdict(False, "network_off")
    for rule in compiled.deny:
        if port is not None and rule.matches(name, address, port):
            return Verdict(False, "denied", rule.text)
        if port is None and rule.ports == _ALL_PORTS and rule.matches(name, address, None):
            return Verdict(False, "denied", rule.text)
    for rule in compiled.allow:
        if rule.matches(name, address, port):
            return Verdict(True, "allowed", rule.text, by_name=rule.network is None)
    if compiled.policy.mode is Mode.PUBLIC:
        return Verdict(True, "allowed", "public")
    return Verdict(False, "not_listed")


def name_may_resolve(compiled: Compiled, name: str) -> Verdict:
    """Whether a name may be looked up: only if some connection to it could be allowed. Else nobody hears of it."""
    verdict = decide(compiled, name, None, None)
    if verdict.unlisted and any(rule.network is not None for rule in compiled.allow):
        # A name may lead to an address that is allowed; but whoever is asked learns the name, so it takes a rule that
        # says "everywhere".
        everywhere = any(rule.network is not None and rule.network.prefixlen == 0 for rule in compiled.allow)
        return Verdict(True, "allowed", "0.0.0.0/0") if everywhere else verdict
    return verdict


def request_refusal(rules: Sequence[HttpRule], method: str, path: str) -> str:
    """Why a request to a host with rules is refused; empty if one of them lets it through."""
    if not rules:
        return ""
    for rule in rules:
        if rule.methods and method not in rule.methods:
            continue
        if rule.path_prefixes and not any(path_below(path, prefix) for prefix in rule.path_prefixes):
            continue
        return ""
    return "http_rule"


def path_below(path: str, prefix: str) -> bool:
    """Whether a path is the prefix or below it. A path that a server might read in another way is below nothing."""
    plain = path.partition("?")[0]
    # A server behind another may decode once more, and some take what follows a semicolon for no part of a name.
    decoded = _ENCODED_PERCENT.sub("%", plain.lower()).replace("%3b", ";")
    if any(trick in decoded for trick in ("//", "\\", "#", "%2e", "%2f", "%5c", "%00")):
        return False
    if any(segment.partition(";")[0] in (".", "..") for segment in decoded.split("/")):
        return False
    return plain == prefix or plain.startswith(prefix if prefix.endswith("/") else prefix + "/")


def normal_name(text: str) -> str:
    """A host name as it is compared; InvalidArgument if it is none."""
    lowered = text.strip().rstrip(".").lower()
    try:
        lowered = lowered.encode("idna").decode("ascii") if not lowered.isascii() else lowered
    except UnicodeError:
        raise _wrong(f"{text[:80]!r} is not a host name") from None
    labels = lowered.split(".")
    if not 0 < len(lowered) <= limits.HOST_NAME_CHARS_MAX or not all(map(_LABEL.fullmatch, labels)):
        raise _wrong(f"{text[:80]!r} is not a host name")
    if labels[-1].isdigit() or re.fullmatch(r"0x[0-9a-f]*", labels[-1]):
        raise _wrong(f"{text[:80]!r} looks like an address in an unusual form")
    return lowered


def check(policy: Policy) -> None:
    """Refuse what is out of bounds or not understood."""
    if len(policy.allow) + len(policy.deny) + len(policy.http) > limits.POLICY_RULES_MAX:
        raise _wrong(f"a policy has at most {limits.POLICY_RULES_MAX} rules")
    if not 1 <= policy.ask_s <= limits.ASK_S_MAX:
        raise _wrong(f"ask_s is between 1 and {limits.ASK_S_MAX:g}")
    if policy.bytes_max is not None and policy.bytes_max < 0:
        raise _wrong("bytes_max is not below 0")
    if policy.rate_bytes_per_s is not None and policy.rate_bytes_per_s < limits.EGRESS_RATE_BYTES_PER_S_MIN:
        raise _wrong(f"rate_bytes_per_s is at least {limits.EGRESS_RATE_BYTES_PER_S_MIN}")
    if not 1 <= policy.connections_max <= limits.EGRESS_CONNECTIONS_MAX:
        raise _wrong(f"connections_max is between 1 and {limits.EGRESS_CONNECTIONS_MAX}")
    for rule in policy.http:
        _check_http(rule)


def parse_rule(text: str, *, deny: bool = False) -> Rule:
    """One rule that is not a list."""
    if not 0 < len(text) <= limits.POLICY_RULE_CHARS_MAX or text != text.strip():
        raise _wrong(f"{text[:80]!r} is not a rule")
    if text.count(":") > 1:
        raise _wrong(f"{text[:80]!r} is not a rule: there is no IPv6 in a sandbox")
    place, colon, ports = text.partition(":")
    network = _network(place)
    default = _ALL_PORTS if deny or network is not None else _WEB_PORTS
    ranges = _ports(ports, text) if colon else default
    if network is not None:
        return Rule(text, ranges, network=network)
    if place.startswith("*."):
        return Rule(text, ranges, suffix="." + normal_name(place[2:]))
    return Rule(text, ranges, name=normal_name(place))


def parse_lists(text: str) -> dict[str, tuple[str, ...]]:
    """An operator's lists of hosts: `packages=a.example,*.b.example; git=c.example:22`. Each rule is checked here."""
    lists: dict[str, tuple[str, ...]] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, equals, hosts = part.partition("=")
        name = name.strip().removeprefix("@")
        if not equals or not _LIST.fullmatch(f"@{name}"):
            raise _wrong(f"{part[:80]!r} is not a list; write name=host,host")
        lists[name] = tuple(host.strip() for host in hosts.split(",") if host.strip())
        for host in lists[name]:
            parse_rule(host)
    return lists


def _rules(text: str, lists: Mapping[str, Sequence[str]], *, deny: bool) -> Iterable[Rule]:
    if not text.startswith("@"):
        return [parse_rule(text, deny=deny)]
    if not _LIST.fullmatch(text) or text[1:] not in lists:
        known = ", ".join(f"@{name}" for name in sorted(lists)) or "none"
        raise InvalidArgument(
            f"there is no list {text[:80]!r}", code="invalid_policy", hint=f"Lists in the configuration: {known}."
        )
    parsed = [parse_rule(entry, deny=deny) for entry in lists[text[1:]]]
    return [Rule(f"{text} {rule.text}", rule.ports, rule.name, rule.suffix, rule.network) for rule in parsed]


def _network(place: str) -> Network | None:
    """An address or a network in its usual form; None for a name."""
    if place.startswith("*.") or not re.fullmatch(r"[0-9./]+", place):
        return None
    try:
        return ipaddress.IPv4Network(place, strict=True)
    except ValueError as error:
        raise _wrong(f"{place[:80]!r} is not an address: {error}") from None


def _ports(text: str, rule: str) -> PortRanges:
    if text == "*":
        return _ALL_PORTS
    ranges = []
    for part in text.split(","):
        low, dash, high = part.partition("-")
        if not re.fullmatch(r"\d{1,5}", low) or (dash and not re.fullmatch(r"\d{1,5}", high)):
            raise _wrong(f"{rule[:80]!r} has a port that is none")
        first, last = int(low), int(high) if dash else int(low)
        if not 1 <= first <= last <= 65535:
            raise _wrong(f"{rule[:80]!r} has a port that is none")
        ranges.append((first, last))
    return tuple(ranges)


def _http_match(rule: HttpRule) -> Rule:
    parsed = parse_rule(rule.host)
    if parsed.network is not None:
        raise _wrong(f"{rule.host[:80]!r}: rules for HTTP are for names")
    return parsed


def _check_http(rule: HttpRule) -> None:
    if ":" in rule.host:
        raise _wrong(f"{rule.host[:80]!r}: a rule for HTTP names a host without a port")
    if not all(_METHOD.fullmatch(method) for method in rule.methods):
        raise _wrong(f"methods of {rule.host[:80]!r} are words in capitals")
    if not all(prefix.startswith("/") and path_below(prefix, "/") for prefix in rule.path_prefixes):
        raise _wrong(f"path prefixes of {rule.host[:80]!r} start with a slash and have no tricks in them")
    for name in (*rule.set_headers, *rule.remove_headers):
        if not _HEADER.fullmatch(name) or name.lower() in FRAMING_HEADERS:
            raise _wrong(f"{name[:80]!r} is not a header that a rule may change")
    for value in rule.set_headers.values():
        if len(value) > limits.HEADER_VALUE_CHARS_MAX or not value.isascii() or not value.isprintable():
            raise _wrong("the value of a header is printable ASCII")


# Headers that say where a message ends or whom it is for; a rule that changed them would be a way around the others.
FRAMING_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer"})


def _wrong(why: str) -> InvalidArgument:
    return InvalidArgument(why, code="invalid_policy", hint="docs/api.md, Policies, shows how rules are written.")
