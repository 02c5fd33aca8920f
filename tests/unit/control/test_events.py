"""The audit log: complete, in order, waited for, copied to a file without gaps, and kept apart between tenants."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from atoll.control.authz import ALL_SCOPES, Principal
from atoll.control.events import EventFilter, Events
from atoll.control.store.engine import Store, sqlite_url
from atoll.model import limits
from atoll.model.errors import InvalidArgument, Unavailable
from atoll.model.sandbox import SandboxSpec
from atoll.telemetry import Metrics
from atoll.testing.clock import VirtualClock

pytestmark = pytest.mark.anyio

ME = Principal("default", "ak", ALL_SCOPES, source="10.0.0.9", request_id="r1")


@pytest.fixture
async def events(tmp_path: Path) -> AsyncIterator[Events]:
    async with Store.open(sqlite_url(tmp_path / "db")) as store:
        yield Events(store, VirtualClock(), Metrics())


async def test_the_life_of_a_sandbox_is_on_record_with_who_and_why(world: Any) -> None:
    sandbox, _ = await world.control.sandbox_create(ME, SandboxSpec())
    await world.control.sandbox_set_deadline(ME, sandbox.id, 60)
    await world.control.sandbox_kill(ME, sandbox.id)
    page = await world.control.accounts.events.page(EventFilter("default", target=sandbox.id), None, 100)
    told = [(event.action, event.actor, event.source) for event in page.items]
    assert told == [
        ("sandbox.creating", "ak", "10.0.0.9"),
        ("sandbox.running", "system", ""),
        ("sandbox.deadline", "ak", "10.0.0.9"),
        ("sandbox.ending", "ak", "10.0.0.9"),
        ("sandbox.killed", "system", ""),
    ]
    assert page.items[-1].detail["reason"] == "killed_by_user"
    assert (await world.control.accounts.events.page(EventFilter("other"), None, 100)).items == []


async def test_whoever_waits_is_told_at_once_and_otherwise_nothing(events: Events) -> None:
    start = await events.page(EventFilter("default"), None, 10)
    found: list[Any] = []

    async def wait() -> None:
        found.append(await events.page(EventFilter("default", actions=("b",)), start.next, 10, 20))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            events.note(ME, "a", "", "ok")
            await events.flush()
            events.note(ME, "b", "", "ok")
            await events.flush()
    assert [event.action for event in found[0].items] == ["b"]
    with anyio.fail_after(5):
        assert (await events.page(EventFilter("default", actions=("c",)), 0, 10, 0.05)).items == []


async def test_a_log_that_cannot_be_written_is_bounded(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EVENT_QUEUE_MAX", 3)
    for _ in range(5):
        events.note(ME, "a", "", "ok")
    await events.flush()
    assert len((await events.page(EventFilter("default"), None, 10)).items) == 3
    assert events._metrics.events_lost._value.get() == 2


async def test_a_tenant_that_floods_the_log_pushes_out_nobody_elses_entries(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "EVENT_QUEUE_MAX", 100)
    other = Principal("other", "ak2", ALL_SCOPES)
    for _ in range(1000):
        events.note(ME, "a", "", "ok")
    for _ in range(10):
        events.note(other, "b", "", "ok")
    write = events._store.write

    async def refused(*_: Any, **__: Any) -> None:
        raise Unavailable("the database does not answer", code="database_unavailable")

    monkeypatch.setattr(events._store, "write", refused)
    with pytest.raises(Unavailable):
        await events.flush()
    monkeypatch.setattr(events._store, "write", write)
    events.note(ME, "a", "", "ok")  # still too many: nothing was written
    await events.flush()
    kept = [event.owner for event in (await events.page(EventFilter(None), None, 1000)).items]
    assert (kept.count("default"), kept.count("other")) == (75, 10)
    for _ in range(50):
        events.note(ME, "a", "", "ok")  # there is room again
    await events.flush()
    assert len((await events.page(EventFilter("default"), None, 1000)).items) == 125


async def test_what_is_no_text_is_made_one(events: Events) -> None:
    events.note(ME, "a", "x\0\ud800" + "y" * 1000, "ok")
    await events.flush()
    (event,) = (await events.page(EventFilter("default"), None, 10)).items
    assert event.target.startswith("x ?")
    assert len(event.target) == limits.EXTERNAL_ID_CHARS_MAX


@pytest.mark.parametrize("items_max", [0, 1001])
async def test_pages_are_bounded(events: Events, items_max: int) -> None:
    with pytest.raises(InvalidArgument):
        await events.page(EventFilter("default"), None, items_max)
    with pytest.raises(InvalidArgument):
        await events.page(EventFilter("default", target="a\0"), None, 10)


async def test_what_could_not_be_written_is_tried_again_though_nothing_new_comes(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "EVENT_FLUSH_S", 0.0)
    write = events._store.write

    async def refused(*_: Any, **__: Any) -> None:
        raise Unavailable("the database does not answer", code="database_unavailable")

    monkeypatch.setattr(events._store, "write", refused)
    events.note(ME, "a", "", "ok")
    with pytest.raises(Unavailable):
        await events.flush_step()
    monkeypatch.setattr(events._store, "write", write)
    with anyio.fail_after(5):
        await events.flush_step()
    assert [event.action for event in (await events.page(EventFilter("default"), None, 10)).items] == ["a"]


async def test_what_is_old_is_forgotten(events: Events) -> None:
    events.note(ME, "a", "", "ok")
    await events.flush()
    await events._clock.advance(86400 * 2)  # type: ignore[attr-defined]
    events.note(ME, "b", "", "ok")
    await events.flush()
    await events.forget(1)
    assert [event.action for event in (await events.page(EventFilter("default"), None, 10)).items] == ["b"]
