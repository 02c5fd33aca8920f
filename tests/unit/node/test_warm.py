"""How many sandboxes wait: what is asked for, within the ceiling and the memory."""

from __future__ import annotations

import errno
import time
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from atoll.model import limits
from atoll.model.resources import Resources
from atoll.model.template import Template
from atoll.node import admission, templates, warm
from atoll.node.shelf import Shelf
from atoll.wire.node import WarmCount

PLENTY = 1000 * limits.WARM_BOX_BYTES


def affords(count: int) -> int:
    return int(count * limits.WARM_BOX_BYTES / limits.WARM_MEMORY_SHARE)


def test_without_demand_the_floor_is_kept() -> None:
    assert warm.wanted(0, 0, ceiling=8, available_bytes=PLENTY) == WarmCount(limits.WARM_FLOOR, limits.WARM_FLOOR)
    assert warm.wanted(0, 0, ceiling=0, available_bytes=PLENTY) == WarmCount(0, 0)


def test_demand_counts_up_to_the_ceiling() -> None:
    assert warm.wanted(5, 3, ceiling=8, available_bytes=PLENTY) == WarmCount(5, 3)
    assert warm.wanted(50, 50, ceiling=8, available_bytes=PLENTY) == WarmCount(8, 8)


def test_memory_has_the_last_word() -> None:
    assert warm.wanted(5, 5, ceiling=8, available_bytes=affords(2)) == WarmCount(2, 1)
    assert warm.wanted(1, 8, ceiling=8, available_bytes=affords(2)).live == 1
    assert 1 < warm.wanted(1, 8, ceiling=8, available_bytes=affords(2)).shells < 8
    assert warm.wanted(5, 5, ceiling=8, available_bytes=0) == WarmCount(0, 0)
    assert warm.wanted(5, 5, ceiling=8, available_bytes=-1) == WarmCount(0, 0)


def test_who_asks_for_shells_in_vain_is_counted_too() -> None:
    """So that the next call that makes many copies finds a box for each."""
    pool = warm.WarmPool(cast(Any, None), cast(Any, None), size=8)
    boot: Any = object()
    shelf = pool._shelves["code"] = Shelf(
        Template(name="code", key="1" * 16), image=cast(Any, SimpleNamespace(boot=boot)), late_root=True
    )
    assert [pool.claim_box(boot, Resources()) for _ in range(5)] == [None] * 5
    assert shelf.shell_demand(time.monotonic()) == 5
    shelf.late_root = False  # then they are of no use for this
    assert pool.claim_box(boot, Resources()) is None
    assert shelf.shell_demand(time.monotonic()) == 5


def test_it_is_quiet_only_when_nobody_waits_and_a_while_after() -> None:
    nothing: Any = None
    pool = warm.WarmPool(nothing, nothing, size=1)
    assert pool.quiet_s() > limits.CONTEXT_REWARM_S
    with pool.busy():
        with pool.busy():
            assert pool.quiet_s() == 0.0
        assert pool.quiet_s() == 0.0
    assert 0.0 <= pool.quiet_s() < limits.WARM_REST_S
    assert pool._rest_s() > 0.0  # whoever has just got one shall have the machine


class Box:
    """One that waits."""

    alive = True
    gone = False

    async def demolish(self) -> None:
        self.gone = True


def test_a_claim_finds_the_living_of_its_template_with_the_usual_memory() -> None:
    pool = warm.WarmPool(cast(Any, None), cast(Any, None), size=8)
    shelf = pool._shelves["code"] = Shelf(Template(name="code", key="1" * 16))
    assert not pool.has_live("code", Resources())
    shelf.live.append(cast(Any, Box()))
    assert pool.has_live("code", Resources())
    assert not pool.has_live("base", Resources())
    assert not pool.has_live("code", Resources(memory_bytes=2 * Resources().memory_bytes))
    shelf.live[0].alive = False  # type: ignore[misc]
    assert not pool.has_live("code", Resources())


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_under_pressure_all_that_waits_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Live ones and shells: what nobody owns has no memory when somebody needs it."""
    pool = warm.WarmPool(cast(Any, None), cast(Any, None), size=8)
    shelf = Shelf(Template(name="code", key="1" * 16), image=cast(Any, object()))
    live, shells = [Box(), Box()], [Box()]
    shelf.live.extend(cast(Any, live))
    shelf.shells.extend(cast(Any, shells))
    pool._shelves["code"] = shelf
    monkeypatch.setattr(admission, "host_memory", lambda: SimpleNamespace(available=limits.MIB, total=2**34))
    while await pool._step():
        pass
    assert all(box.gone for box in (*live, *shells))
    assert (len(shelf.live), len(shelf.shells)) == (0, 0)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("where", ["templates", "memory"])
async def test_a_machine_that_is_out_of_files_for_a_moment_does_not_end_the_supply(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(limits, "WARM_LOOK_S", 0)
    pool = warm.WarmPool(cast(Any, SimpleNamespace(pool=None)), cast(Any, None), size=8)
    pool._shelves["code"] = Shelf(Template(name="code", key="1" * 16), image=cast(Any, object()))
    looked = anyio.Event()
    failed: list[str] = []

    def known(_pool: Any) -> list[Template]:
        if where == "templates" and not failed:
            failed.append(where)
            raise OSError(errno.EMFILE, "too many open files")
        return []

    def host_memory() -> Any:
        if where == "memory" and not failed:
            failed.append(where)
            raise OSError(errno.EMFILE, "too many open files")
        looked.set()
        return SimpleNamespace(available=0, total=2**34)

    monkeypatch.setattr(templates, "known", known)
    monkeypatch.setattr(admission, "host_memory", host_memory)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pool.run)
        with anyio.fail_after(5):
            await looked.wait()
        tasks.cancel_scope.cancel()
    assert failed == [where]
