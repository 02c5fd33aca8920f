"""A world in memory: the real control and the real database over a node that is simulated, in virtual time."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
from anyio.from_thread import start_blocking_portal

from atoll.control.authz import ALL_SCOPES, Principal
from atoll.control.sandboxes import Query
from atoll.control.service import Control
from atoll.control.store.engine import Store, migrate, sqlite_url
from atoll.model.errors import AtollError, Conflict, Unavailable
from atoll.model.lifecycle import FINAL, State
from atoll.model.sandbox import SandboxSpec
from atoll.telemetry import Metrics
from atoll.testing.clock import VirtualClock
from atoll.testing.nodes import FakeNode
from tests.simulation.histories import Known

ME = Principal("default", "ak", ALL_SCOPES)
SETTLE_S = 20
LONG_S = 10_000


class CutStore(Store):
    """A database of a server that can be dead: whoever still wants to write gets nowhere."""

    cut = False

    async def write(self, query: Any, *arguments: Any, **options: Any) -> Any:
        if query is migrate:
            return None  # it is a copy of one that was; this would take most of the time of a history
        if self.cut:
            raise Unavailable("the server is dead", code="database_unavailable")
        return await super().write(query, *arguments, **options)


async def make_database(path: Path) -> None:
    """A database with the schema and nothing in it, to copy: migrations take longer than a history."""
    async with Store.open(sqlite_url(path)):
        pass


class SimulatedWorld:
    """`database` is one of `make_database`, and stays as it is."""

    def __init__(self, database: Path) -> None:
        self._node = FakeNode()
        self._clock = VirtualClock()
        self._opened = ExitStack()
        folder = Path(self._opened.enter_context(tempfile.TemporaryDirectory(prefix="atoll-history-")))
        self._path = Path(shutil.copy(database, folder / "db"))
        self._portal = self._opened.enter_context(start_blocking_portal())
        self._start()

    def _start(self) -> None:
        self._server = self._portal.wrap_async_context_manager(self._serving())
        self._control, self._store = self._server.__enter__()

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[tuple[Control, CutStore]]:
        async with self._node.running(), CutStore.open(sqlite_url(self._path)) as store:
            assert isinstance(store, CutStore)
            async with Control.open(store, self._node, self._clock, Metrics()) as control:
                yield control, store

    def _stop(self) -> None:
        self._server.__exit__(None, None, None)

    def close(self) -> None:
        self._stop()
        self._opened.close()

    def create(self, *, claim: bool) -> str:
        # To control, a claim is a create that was fast.
        return self._portal.call(self._create)

    async def _create(self) -> str:
        return (await self._control.sandbox_create(ME, SandboxSpec(timeout_s=LONG_S)))[0].id

    def write(self, sandbox_id: str, text: str) -> None:
        self._portal.call(self._guest, sandbox_id)
        self._node.guests[sandbox_id].files["/note"] = text.encode()

    def read(self, sandbox_id: str) -> str:
        self._portal.call(self._guest, sandbox_id)
        return self._node.guests[sandbox_id].files["/note"].decode()

    async def _guest(self, sandbox_id: str) -> None:
        inside = await self._control.guest(ME, sandbox_id)
        await inside.call("ping", {})

    def refuses(self, sandbox_id: str) -> bool:
        try:
            self._portal.call(self._guest, sandbox_id)
        except Conflict as error:
            return error.code == "not_running"
        return False

    def kill(self, sandbox_id: str) -> None:
        self._portal.call(self._control.sandbox_kill, ME, sandbox_id)

    def overrun(self, sandbox_id: str) -> None:
        self._portal.call(self._control.sandbox_set_deadline, ME, sandbox_id, 1)
        self._portal.call(self._clock.advance, 1)
        self._portal.call(self._ended, sandbox_id)

    def die(self, sandbox_id: str) -> None:
        self._portal.call(self._end_below, sandbox_id)
        self._portal.call(self._ended, sandbox_id)

    async def _end_below(self, sandbox_id: str) -> None:
        self._node.die(sandbox_id)

    def crash(self, dying: Collection[str], under_way: _UnderWay | None = None) -> None:
        self._store.cut = True
        self._stop()
        if under_way is not None:
            # A dead server has no transaction in a thread that could still be committed: the next one waits for it.
            self._portal.call(under_way.done.wait)
        for sandbox_id in dying:
            self._node.guests.pop(sandbox_id).end()
        self._start()
        for sandbox_id in dying:
            self._portal.call(self._ended, sandbox_id)

    def crash_during_create(self, moment: int) -> None:
        self._crash_during(self._create, moment)

    def crash_during_kill(self, sandbox_id: str, moment: int) -> None:
        async def kill() -> None:
            await self._control.sandbox_kill(ME, sandbox_id)

        self._crash_during(kill, moment)

    def _crash_during(self, act: Callable[[], Coroutine[Any, Any, Any]], moment: int) -> None:
        """Begin something, let so many turns of the loop pass, and die."""
        under_way = self._portal.call(_UnderWay, act)
        self._portal.start_task_soon(under_way.run)
        self._portal.call(_turns, moment)
        self._store.cut = True
        self._portal.call(under_way.scope.cancel)
        self.crash((), under_way)

    def known(self) -> Mapping[str, Known]:
        return self._portal.call(self._known)

    async def _known(self) -> dict[str, Known]:
        with anyio.fail_after(SETTLE_S):
            while True:
                items = (await self._control.sandbox_list(ME, Query(), None, 200)).items
                if all(one.state is State.RUNNING or one.state in FINAL for one in items):
                    return {one.id: Known(one.state.value, one.end_reason and one.end_reason.value) for one in items}
                await anyio.sleep(0.001)

    async def _ended(self, sandbox_id: str) -> None:
        with anyio.fail_after(SETTLE_S):
            while (await self._control.sandbox_get(ME, sandbox_id)).state not in FINAL:
                await anyio.sleep(0.001)

    def present(self) -> Collection[str]:
        return self._portal.call(self._present)

    async def _present(self) -> set[str]:
        """What was ended may go from the node a moment after the record says so."""
        with anyio.move_on_after(SETTLE_S):
            while True:
                running = {one for one, known in (await self._known()).items() if known.state == State.RUNNING}
                if set(self._node.guests) <= running:
                    break
                await anyio.sleep(0.001)
        return set(self._node.guests)


class _UnderWay:
    """Something that is being done when the server dies."""

    def __init__(self, act: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._act = act
        self.scope = anyio.CancelScope()
        self.done = anyio.Event()

    async def run(self) -> None:
        try:
            with self.scope, suppress(AtollError):
                await self._act()
        finally:
            self.done.set()


async def _turns(count: int) -> None:
    for _ in range(count):
        await anyio.lowlevel.checkpoint()
        if count % 3 == 0:
            await anyio.sleep(0.0002)  # long enough for a transaction in its thread to end now and then
