"""Sandboxes that are being made or brought back at this moment, so that a kill can stop that and wait for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

from atoll.model.errors import Conflict


@dataclass(frozen=True, slots=True)
class Attempt:
    """One in progress: how to stop it, and when it has stopped."""

    scope: anyio.CancelScope
    finished: anyio.Event


class Attempts:
    """All of one server, by sandbox."""

    def __init__(self) -> None:
        self.by_sandbox: dict[str, Attempt] = {}

    @asynccontextmanager
    async def begun(self, sandbox_id: str) -> AsyncIterator[Attempt]:
        """While this lasts a kill can stop it; then Conflict (killed) is raised."""
        attempt = self.by_sandbox[sandbox_id] = Attempt(anyio.CancelScope(), anyio.Event())
        try:
            with attempt.scope:
                yield attempt
            if attempt.scope.cancelled_caught:
                raise Conflict("the sandbox was killed while it was being made", code="killed")
        finally:
            del self.by_sandbox[sandbox_id]
            attempt.finished.set()
