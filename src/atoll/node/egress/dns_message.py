"""DNS messages: a question read from hostile bytes, an answer built, an upstream server's answer read. Pure.

Only what a proxy needs: one question, addresses of IPv4, and the names in between (CNAME). A question for anything else
gets an honest empty answer, so that clients go on; it is never sent anywhere.
"""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass

from atoll.model import limits

TYPE_A = 1
TYPE_CNAME = 5
CLASS_IN = 1
NO_ERROR = 0
SERVER_FAILED = 2
NO_SUCH_NAME = 3
REFUSED = 5

_HEADER = struct.Struct("!6H")
_FLAG_RESPONSE = 0x8000
_FLAG_TRUNCATED = 0x0200
_FLAG_RECURSION_WANTED = 0x0100
_FLAG_RECURSION_OFFERED = 0x0080
_OPCODE = 0x7800


class DnsError(ValueError):
    """Bytes that are no DNS message of the kind that was expected."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a client asks. `raw` is the question as it stood, to be repeated in the answer."""

    ident: int
    name: str
    kind: int
    klass: int
    raw: bytes
    recursion_wanted: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What an upstream server says about a name."""

    code: int
    truncated: bool
    addresses: tuple[ipaddress.IPv4Address, ...]
    ttl_s: int


def parse_question(message: bytes) -> Question:
    """The one question of a query; DnsError for anything else."""
    if not _HEADER.size < len(message) <= limits.DNS_QUERY_BYTES_MAX:
        raise DnsError("not the size of a question")
    ident, flags, questions, answers, authorities, _ = _HEADER.unpack_from(message)
    if flags & (_FLAG_RESPONSE | _OPCODE) or questions != 1 or answers or authorities:
        raise DnsError("not a plain question")
    name, after = _name(message, _HEADER.size, pointers=False)
    if after + 4 > len(message):
        raise DnsError("the question is cut off")
    kind, klass = struct.unpack_from("!2H", message, after)
    raw = message[_HEADER.size : after + 4]
    return Question(ident, name, kind, klass, raw, bool(flags & _FLAG_RECURSION_WANTED))


def build_answer(
    question: Question, code: int, addresses: tuple[ipaddress.IPv4Address, ...] = (), ttl_s: int = 0
) -> bytes:
    """A whole answer; it fits 512 bytes by the bounds on names and addresses."""
    wanted = _FLAG_RECURSION_WANTED if question.recursion_wanted else 0
    flags = _FLAG_RESPONSE | wanted | _FLAG_RECURSION_OFFERED | code
    shown = addresses[: (limits.DNS_QUERY_BYTES_MAX - _HEADER.size - len(question.raw)) // 16]
    head = _HEADER.pack(question.ident, flags, 1, len(shown), 0, 0)
    records = (struct.pack("!3HIH", 0xC000 | _HEADER.size, TYPE_A, CLASS_IN, ttl_s, 4) + a.packed for a in shown)
    return head + question.raw + b"".join(records)


def build_query(ident: int, name: str) -> bytes:
    """A question for the IPv4 addresses of a name that has been checked."""
    labels = b"".join(bytes((len(label),)) + label.encode("ascii") for label in name.split("."))
    return _HEADER.pack(ident, _FLAG_RECURSION_WANTED, 1, 0, 0, 0) + labels + struct.pack("!x2H", TYPE_A, CLASS_IN)


def parse_answer(message: bytes, query: bytes) -> Answer:
    """What a server answers to this query; DnsError if it answers something else."""
    if len(message) < _HEADER.size:
        raise DnsError("too short for an answer")
    ident, flags, questions, answers, _, _ = _HEADER.unpack_from(message)
    if ident != int.from_bytes(query[:2]) or not flags & _FLAG_RESPONSE or questions != 1:
        raise DnsError("not an answer to this query")
    asked, after = _name(message, _HEADER.size, pointers=False)
    wanted, _ = _name(query, _HEADER.size, pointers=False)
    if asked != wanted or message[after : after + 4] != query[-4:]:
        raise DnsError("an answer to another question")
    code, truncated = flags & 0xF, bool(flags & _FLAG_TRUNCATED)
    if truncated or code != NO_ERROR:
        return Answer(code, truncated, (), 0)
    addresses, ttl_s = _addresses(message, after + 4, answers, wanted)
    return Answer(code, False, addresses, ttl_s)


def _addresses(message: bytes, position: int, count: int, wanted: str) -> tuple[tuple[ipaddress.IPv4Address, ...], int]:
    """The addresses of the name or of those it is an alias for; records about other names are nobody's business."""
    names = {wanted}
    found: list[ipaddress.IPv4Address] = []
    ttl_s = limits.DNS_TTL_S_MAX
    for _ in range(min(count, 4 * limits.DNS_ANSWERS_MAX)):
        owner, position = _name(message, position, pointers=True)
        if position + 10 > len(message):
            raise DnsError("a record is cut off")
        kind, klass, record_ttl_s, size = struct.unpack_from("!2HIH", message, position)
        position += 10
        if position + size > len(message):
            raise DnsError("a record is cut off")
        if klass == CLASS_IN and owner in names:
            ttl_s = min(ttl_s, record_ttl_s)
            if kind == TYPE_A and size == 4:
                found.append(ipaddress.IPv4Address(message[position : position + 4]))
            elif kind == TYPE_CNAME:
                names.add(_name(message, position, pointers=True)[0])
        position += size
    return tuple(dict.fromkeys(found))[: limits.DNS_ANSWERS_MAX], ttl_s


def _name(message: bytes, position: int, *, pointers: bool) -> tuple[str, int]:
    """A name in lower case and the position after it. Pointers lead backwards only, so there is no loop."""
    labels: list[str] = []
    end = -1
    lowest = position
    for _ in range(limits.DNS_LABELS_IN_ANSWER_MAX):
        if position >= len(message):
            raise DnsError("a name is cut off")
        size = message[position]
        if size == 0:
            return _joined(labels), end if end >= 0 else position + 1
        if size >= 0xC0 and pointers:
            if position + 2 > len(message):
                raise DnsError("a name is cut off")
            target = int.from_bytes(message[position : position + 2]) & 0x3FFF
            end = end if end >= 0 else position + 2
            if target >= lowest:
                raise DnsError("a name that points forward")
            position = lowest = target
            continue
        if size > 63 or position + 1 + size > len(message):
            raise DnsError("a label that is none")
        labels.append(message[position + 1 : position + 1 + size].decode("latin-1").lower())
        position += 1 + size
    raise DnsError("a name without end")


def _joined(labels: list[str]) -> str:
    if any("." in label for label in labels):
        raise DnsError("a label with a dot in it")
    name = ".".join(labels)
    if len(name) > limits.HOST_NAME_CHARS_MAX:
        raise DnsError("a name that is too long")
    return name
