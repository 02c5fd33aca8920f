"""Histories of control over a node in memory, in virtual time, with faults; all chosen by one seed.

A history creates, repeats, kills, waits, lets sandboxes die, lets the node, its samples and the database fail, moves
the clock back, and stops the server at any moment, in order or not. At its end the faults stop, and all must agree.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio

from atoll.control.authz import ALL_SCOPES, Principal
from atoll.control.sandboxes import Query
from atoll.control.service import Control
from atoll.control.store import usage as usage_rows
from atoll.control.store.engine import Store, sqlite_url
from atoll.control.usage import UsageFilter
from atoll.model.errors import AtollError, Unavailable
from atoll.model.lifecycle import FINAL, State
from atoll.model.quota import Quota
from atoll.model.sandbox import Budget, Sandbox, SandboxSpec
from atoll.model.usage import Sample, Usage
from atoll.telemetry import Metrics
from atoll.testing.clock import VirtualClock
from atoll.testing.nodes import FakeNode

QUOTA = Quota(sandboxes=4)
ME = Principal("default", "ak", ALL_SCOPES, tenant_quota=QUOTA)
SETTLE_S = 20
EXACT = 1e-6


class FaultyStore(Store):
    """A database that does not answer now and then, before anything of a transaction has happened."""

    faults: Callable[[], bool] = staticmethod(lambda: False)

    async def write(self, query: Any, *arguments: Any, **options: Any) -> Any:
        if self.faults():
            raise Unavailable("the database does not answer", code="database_unavailable")
        return await super().write(query, *arguments, **options)


class Simulation:
    """One history."""

    def __init__(self, seed: int, folder: Path) -> None:
        self._random = random.Random(seed)  # noqa: S311 - to be repeatable, not to be secret
        self._folder = folder
        self._node = FakeNode()
        self._clock = VirtualClock()
        self._cpu_s: dict[str, float] = {}
        self._faulty = True
        self._by_key: dict[str, str] = {}
        self._seen: dict[str, Usage] = {}
        """What somebody was shown."""

    async def play(self, steps: int) -> None:
        """Servers follow one another on the same database and node; the last one is left in peace."""
        left = steps
        while left > 0:
            life = self._random.randint(1, 12)
            async with self._node.running():
                await self._serve(min(life, left))
            left -= life
        self._faulty = False
        async with self._node.running(), Store.open(self._url) as store:
            async with Control.open(store, self._node, self._clock, Metrics()) as control:
                await self._check(control, store)

    @property
    def _url(self) -> str:
        return sqlite_url(self._folder / "db")

    async def _serve(self, steps: int) -> None:
        FaultyStore.faults = staticmethod(lambda: False)
        async with FaultyStore.open(self._url) as store:
            async with Control.open(store, self._node, self._clock, Metrics()) as control:
                FaultyStore.faults = staticmethod(lambda: self._faulty and self._random.random() < 0.05)
                with anyio.CancelScope() as life:
                    async with anyio.create_task_group() as tasks:
                        for _ in range(steps):
                            tasks.start_soon(self._step, control)
                            if self._random.random() < 0.6:
                                await anyio.wait_all_tasks_blocked()
                        if self._random.random() < 0.5:
                            life.cancel()  # whatever is under way is cut off here
                FaultyStore.faults = staticmethod(lambda: False)

    async def _step(self, control: Control) -> None:
        acts = [self._create, self._create, self._kill, self._die, self._wait, self._extend, self._look]
        act = self._random.choice(acts)
        with suppress(AtollError):
            await act(control)

    async def _create(self, control: Control) -> None:
        if self._random.random() < 0.2:
            self._node.create_errors.append(Unavailable("no room"))
        budget = Budget(seconds=self._random.choice([None, 5.0, 50.0]))
        key = self._random.choice(["", "", "k1", "k2"])
        spec = SandboxSpec(timeout_s=100, budget=Budget() if key else budget)
        sandbox, _ = await control.sandbox_create(ME, spec, key)
        live = [one for one in (await control.sandbox_list(ME, Query(), None, 200)).items if one.state not in FINAL]
        assert len(live) <= (QUOTA.sandboxes or 0), "over the quota"
        if key:
            before = self._by_key.setdefault(key, sandbox.id)
            if before != sandbox.id:  # a key is given again only if what it made never came to life
                assert (await control.sandbox_get(ME, before)).started_at is None
                self._by_key[key] = sandbox.id

    async def _pick(self, control: Control) -> str | None:
        running = (await control.sandbox_list(ME, Query(states=(State.RUNNING,)), None, 200)).items
        return self._random.choice(running).id if running else None

    async def _kill(self, control: Control) -> None:
        if (chosen := await self._pick(control)) is not None:
            await control.sandbox_kill(ME, chosen)

    async def _extend(self, control: Control) -> None:
        if (chosen := await self._pick(control)) is not None:
            await control.sandbox_set_deadline(ME, chosen, self._random.randint(1, 200))

    async def _die(self, control: Control) -> None:
        chosen = await self._pick(control)
        if chosen in self._node.guests:
            self._node.die(chosen)

    async def _wait(self, control: Control) -> None:  # noqa: ARG002 - time passes for everybody
        if self._random.random() < 0.2:
            self._node.sample_errors.append(RuntimeError("no sample"))
        for sandbox_id in self._node.guests:
            self._cpu_s[sandbox_id] = self._cpu_s.get(sandbox_id, 0.0) + self._random.random()
            self._node.samples[sandbox_id] = Sample(cpu_s=self._cpu_s[sandbox_id])
        await self._clock.advance(self._random.choice([0.5, 5, 40, 70, -3]))

    async def _look(self, control: Control) -> None:
        """What somebody was shown of a sandbox is not less later."""
        for sandbox in (await control.sandbox_list(ME, Query(), None, 200)).items:
            self._seen[sandbox.id] = await self._used(control, sandbox.id)

    async def _used(self, control: Control, sandbox_id: str) -> Usage:
        found = await control.accounts.usage.query(UsageFilter("default", sandbox_id=sandbox_id))
        used = found[0].sum.usage if found else Usage()
        seen = self._seen.get(sandbox_id, Usage())
        assert used.wall_s >= seen.wall_s - EXACT, "time was lost"
        assert used.cpu_s >= seen.cpu_s - EXACT, "CPU was lost"
        return used

    async def _check(self, control: Control, store: Store) -> None:
        """Once all ends are carried out: record and node agree, and usage is what has passed, counted once."""
        self._node.sample_errors.clear()
        await self._clock.advance(0.123)  # to a moment at which nobody has counted, not even without a sample
        with anyio.fail_after(SETTLE_S):
            while True:
                items = (await control.sandbox_list(ME, Query(), None, 200)).items
                running = {one.id for one in items if one.state is State.RUNNING}
                if running == set(self._node.guests) and all(one.state in FINAL or one.id in running for one in items):
                    break
                await anyio.sleep(0.005)
        await control.accounts.usage.count()
        counted_at = {meter.sandbox_id: meter.at for meter in await store.read(usage_rows.meters)}
        for one in items:
            assert (one.ended_at is not None) == (one.end_reason is not None) == (one.state in FINAL)
            await self._check_usage(control, one, counted_at.get(one.id))

    async def _check_usage(self, control: Control, sandbox: Sandbox, counted_at: datetime | None) -> None:
        used = await self._used(control, sandbox.id)
        if sandbox.started_at is None:
            assert used == Usage()
            return
        now, cpu_s = self._clock.now(), self._cpu_s.get(sandbox.id, 0.0)
        life_s = ((sandbox.ended_at or now) - sandbox.started_at).total_seconds()
        # The clock is set back by 3 s now and then; beyond that, time is never counted twice.
        assert used.wall_s <= max(life_s, 0) + 200
        assert used.cpu_s <= cpu_s + EXACT, "CPU was counted twice"
        if counted_at is None:
            return
        # It runs, and did all the time: whichever server counted, and whatever failed meanwhile, nothing is missing.
        assert used.wall_s >= life_s - EXACT, "time was lost"
        if counted_at == now:  # behind a clock that was set back it waits for the clock
            assert used.cpu_s >= cpu_s - EXACT, "CPU was lost"
