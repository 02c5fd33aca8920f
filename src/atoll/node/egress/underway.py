"""A request that was let on and has not come to its end: what was asked, so that rules that change can be asked again.

A request with a long body, an answer that goes on and on, and a connection that went over to another protocol are such.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from atoll.model import limits
from atoll.model.policy import HttpRule, request_refusal

_HTTP_AGAIN = (b"h2", b"http/", b"tls/")  # protocols in which requests go on that nobody would judge


@dataclass(frozen=True, slots=True, eq=False)
class Underway:
    """One of them. `end` ends it and nothing else, if it has nothing else on its connection."""

    method: str
    path: str
    proposed: tuple[bytes, ...]
    """Protocols, in lower case, in one of which the connection may have gone on meanwhile."""
    end: Callable[[], None]

    def is_allowed(self, rules: Sequence[HttpRule]) -> bool:
        """Whether it would be let on by these rules, which are all those for its host."""
        if any(not may_switch(protocol, only_websocket=bool(rules)) for protocol in self.proposed):
            return False
        return not request_refusal(rules, self.method, self.path)


def underway(method: bytes, target: bytes, end: Callable[[], None], proposed: tuple[bytes, ...] = ()) -> Underway:
    """One that begins now. A path that is too long to be kept is below no prefix."""
    path = target.decode("latin-1").partition("?")[0]
    kept = path if len(path) <= limits.HTTP_PATH_KEPT_CHARS_MAX else ""
    return Underway(method.decode("latin-1"), kept, proposed, end)


def may_switch(protocol: bytes, *, only_websocket: bool) -> bool:
    """Whether a client may propose this protocol; what is said in it afterwards is nobody's to judge."""
    return protocol == b"websocket" if only_websocket else bool(protocol) and not protocol.startswith(_HTTP_AGAIN)
