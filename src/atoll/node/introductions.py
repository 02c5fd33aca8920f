"""Claims that were answered while others waited, and whose guest has not heard yet who it is.

    claimed, on record ──▶ answered ──(a moment, or somebody asks)──▶ told ──▶ used

Between the answer and the telling nobody sees the inside of such a sandbox: whoever wants anything of it comes through
`wait`, which has it told at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio


@dataclass(frozen=True, slots=True)
class _Pending:
    asked: anyio.Event = field(default_factory=anyio.Event)
    done: anyio.Event = field(default_factory=anyio.Event)


class Introductions:
    """Those of one node; `within_s` is the longest that one is put off for the sake of others."""

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._pending: dict[str, _Pending] = {}

    def begin(self, sandbox_id: str) -> None:
        """From here on whoever wants this sandbox waits until its turn is over."""
        self._pending[sandbox_id] = _Pending()

    @asynccontextmanager
    async def turn(self, sandbox_id: str) -> AsyncIterator[None]:
        """The time to tell it: when somebody asks for it, or a moment has passed."""
        pending = self._pending[sandbox_id]
        try:
            with anyio.move_on_after(self._within_s):
                await pending.asked.wait()
            yield
        finally:
            del self._pending[sandbox_id]
            pending.done.set()

    def hurry(self, sandbox_id: str) -> None:
        """Its turn is now, if it has had none."""
        if (pending := self._pending.get(sandbox_id)) is not None:
            pending.asked.set()

    async def wait(self, sandbox_id: str) -> None:
        """Until it has been told, which is now; at once if that is over, or never was."""
        if (pending := self._pending.get(sandbox_id)) is not None:
            pending.asked.set()
            await pending.done.wait()
