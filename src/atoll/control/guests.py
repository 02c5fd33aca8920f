"""The way into a running sandbox: one small object for one caller and one sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from atoll.control.authz import Principal
from atoll.control.ledger import Ledger
from atoll.control.sandboxes import not_running
from atoll.model.errors import NotFound
from atoll.model.lifecycle import State
from atoll.model.sandbox import Sandbox
from atoll.wire.node import GuestStream, NodePort


class Guest:
    """The inside of one sandbox. It was running when this was made; an operation finds out whether it still is."""

    def __init__(self, principal: Principal, sandbox: Sandbox, ledger: Ledger, node: NodePort) -> None:
        self._principal = principal
        self._sandbox = sandbox
        self._ledger = ledger
        self._node = node

    async def call(self, op: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """One question, one answer; what comes back is as hostile as the sandbox."""
        try:
            return await self._node.guest_call(self._sandbox.id, op, params)
        except NotFound as error:
            await self._check_still_running(error)
            raise

    @asynccontextmanager
    async def stream(self, op: str, params: Mapping[str, Any]) -> AsyncIterator[GuestStream]:
        """An operation with a stream; leaving the context ends it."""
        try:
            async with self._node.guest_stream(self._sandbox.id, op, params) as stream:
                yield stream
        except NotFound as error:
            await self._check_still_running(error)
            raise

    async def _check_still_running(self, error: NotFound) -> None:
        """The node does not have it: it has just ended, and that is what the caller should hear."""
        if error.code == "sandbox_not_found":
            raise not_running(await self._ledger.find(self._principal.owner, self._sandbox.id)) from error


async def guest_of(principal: Principal, reference: str, ledger: Ledger, node: NodePort) -> Guest:
    """The inside of a sandbox that is the caller's and runs."""
    sandbox = await ledger.find(principal.owner, reference)
    if sandbox.state is not State.RUNNING:
        raise not_running(sandbox)
    return Guest(principal, sandbox, ledger, node)
