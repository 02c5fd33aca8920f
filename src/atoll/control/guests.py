"""The way into a running sandbox: one small object for one caller and one sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from atoll.control.authz import Principal
from atoll.control.ledger import Ledger
from atoll.control.sandboxes import not_running
from atoll.model.errors import Conflict, NotFound
from atoll.model.lifecycle import State
from atoll.model.resources import Resources
from atoll.model.sandbox import Sandbox
from atoll.model.usage import Sample
from atoll.wire import guest
from atoll.wire.node import GuestStream, NodePort

Awake = Callable[[Sandbox], Awaitable[Sandbox]]
"""Wakes a sandbox that sleeps, if it may be woken so."""


class Guest:
    """The inside of one sandbox. It was running when this was made; an operation finds out whether it still is."""

    def __init__(self, principal: Principal, sandbox: Sandbox, ledger: Ledger, node: NodePort, awake: Awake) -> None:
        self._principal = principal
        self._sandbox = sandbox
        self._ledger = ledger
        self._node = node
        self._awake = awake

    async def call(self, op: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """One question, one answer; what comes back is as hostile as the sandbox."""
        try:
            return await self._node.guest_call(self._sandbox.id, op, params)
        except Conflict as error:
            await self._check_asleep(error)
            return await self._node.guest_call(self._sandbox.id, op, params)
        except NotFound as error:
            await self._check_still_running(error)
            raise

    async def use(self) -> tuple[Resources, Sample]:
        """What it may use, and what it uses as the machine counts: no sandbox can lie about that."""
        found = await self._node.sample([self._sandbox.id])
        return self._sandbox.resources, found.get(self._sandbox.id, Sample())

    @asynccontextmanager
    async def stream(self, op: str, params: Mapping[str, Any]) -> AsyncIterator[GuestStream]:
        """An operation with a stream; leaving the context ends it."""
        try:
            async with self._opened(op, params) as stream:
                yield stream
        except NotFound as error:
            await self._check_still_running(error)
            raise

    @asynccontextmanager
    async def _opened(self, op: str, params: Mapping[str, Any]) -> AsyncIterator[GuestStream]:
        async with AsyncExitStack() as open_now:
            try:
                stream = await open_now.enter_async_context(self._node.guest_stream(self._sandbox.id, op, params))
            except Conflict as error:
                await self._check_asleep(error)
                stream = await open_now.enter_async_context(self._node.guest_stream(self._sandbox.id, op, params))
            yield _Stirring(stream, self._stir)

    async def _stir(self) -> None:
        """Before something goes in: the sandbox may have been put in standby since. It costs a look at memory."""
        if self._ledger.in_standby(self._sandbox.id):
            self._sandbox = await self._awake(self._sandbox)

    async def _check_asleep(self, error: Conflict) -> None:
        """It fell asleep between being found and being called: wake it, or say what it really is."""
        if error.code != "asleep":
            raise error
        self._sandbox = await self._awake(self._sandbox)

    async def _check_still_running(self, error: NotFound) -> None:
        """The node does not have it: it has just ended, and that is what the caller should hear."""
        if error.code == "sandbox_not_found":
            raise not_running(await self._ledger.find(self._principal.owner, self._sandbox.id)) from error


class _Stirring:
    """A stream of an operation, on which what goes in wakes the sandbox: else it would wait there unheard."""

    def __init__(self, stream: GuestStream, stir: Callable[[], Awaitable[None]]) -> None:
        self._stream = stream
        self._stir = stir

    def __aiter__(self) -> AsyncIterator[guest.Message]:
        return aiter(self._stream)

    async def send(self, payload: bytes | memoryview) -> None:
        await self._stir()
        await self._stream.send(payload)

    async def send_control(self, value: dict[str, Any]) -> None:
        await self._stir()
        await self._stream.send_control(value)

    async def commit(self) -> None:
        await self._stir()
        await self._stream.commit()


async def guest_of(principal: Principal, reference: str, ledger: Ledger, node: NodePort, awake: Awake) -> Guest:
    """The inside of a sandbox that is the caller's and runs, or wakes up because somebody calls."""
    sandbox = await ledger.find(principal.owner, reference)
    if sandbox.state is not State.RUNNING:
        if sandbox.state not in (State.STANDBY, State.PAUSING, State.PAUSED, State.RESUMING):
            raise not_running(sandbox)
        sandbox = await awake(sandbox)
    return Guest(principal, sandbox, ledger, node, awake)
