"""What is held open by API keys, and its end with the key: when that is revoked, and when it expires."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

import anyio

from atoll.control.clock import Clock
from atoll.model import limits
from atoll.model.errors import Unauthenticated

Why = Callable[[], Unauthenticated]


class KeyEnds:
    """The ends of keys in the life of this server."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[str, set[anyio.CancelScope]] = {}
        """What stays open, by key."""
        self._gone: OrderedDict[str, Why] = OrderedDict()
        """Keys that have ended."""
        self._expiring: dict[str, datetime] = {}
        """Keys that were used and will end."""
        self._awaited: datetime | None = None
        self._changed = anyio.Event()
        self.on_end: Callable[[str], None] = _nobody_listens
        """Told the id of each key that ends: what it holds open elsewhere must close."""

    @contextmanager
    def open_by(self, key_id: str) -> Iterator[None]:
        """Something that stays open for long, because of a key: Unauthenticated ends it with the key."""
        self.check(key_id)
        scope = anyio.CancelScope()
        self._open.setdefault(key_id, set()).add(scope)
        try:
            with scope:
                yield
        finally:
            self._open[key_id].discard(scope)
            if not self._open[key_id]:
                del self._open[key_id]
        if scope.cancelled_caught:
            raise self._gone.get(key_id, revoked)()

    def check(self, key_id: str) -> None:
        """Refuse what a key is about to hold open if it has ended while its bearer waited, perhaps for a sandbox."""
        if key_id in self._gone:
            raise self._gone[key_id]()

    def expects(self, key_id: str, expires_at: datetime | None) -> None:
        """A key is valid now; if it expires, what it holds open ends then."""
        if expires_at is None or key_id in self._expiring:
            return
        if self._gone.get(key_id) is expired:  # the clock was set back
            del self._gone[key_id]
        self._expiring[key_id] = expires_at
        if self._awaited is None or expires_at < self._awaited:
            self._changed.set()

    def end(self, key_id: str, why: Why) -> None:
        """A key opens nothing any more, by the record."""
        self._expiring.pop(key_id, None)
        self._gone.setdefault(key_id, why)
        while len(self._gone) > limits.KEYS_GONE_MAX:
            self._gone.popitem(last=False)
        for scope in self._open.get(key_id, ()):
            scope.cancel()
        self.on_end(key_id)

    async def step(self) -> None:
        """End what expired keys hold open, then wait for the next one that expires."""
        self._changed = anyio.Event()
        now = self._clock.now()
        for key_id in [one for one, expires_at in self._expiring.items() if expires_at <= now]:
            self.end(key_id, expired)
        self._awaited = min(self._expiring.values(), default=None)
        await self._clock.wait_until(self._awaited, self._changed)


def revoked() -> Unauthenticated:
    return Unauthenticated("the API key has been revoked", code="key_revoked", hint="Ask for a new one.")


def expired() -> Unauthenticated:
    return Unauthenticated("the API key has expired", code="key_expired", hint="Ask for a new one.")


def _nobody_listens(_key_id: str) -> None:
    pass
