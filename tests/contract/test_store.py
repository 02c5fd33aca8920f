"""What control expects of a database: SQLite and PostgreSQL, each for real."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
import sqlalchemy as sa

from atoll.control.store import creates, events, keys, snapshots, tenants, webhooks
from atoll.control.store import sandboxes as rows
from atoll.control.store.creates import Allowance, Once
from atoll.control.store.engine import Store, sqlite_url
from atoll.control.store.events import EventFilter
from atoll.control.store.moments import to_us
from atoll.control.store.sandboxes import Filter, Position, Record
from atoll.control.store.tenants import Tenant
from atoll.control.store.webhooks import Webhook
from atoll.model import ids, limits
from atoll.model.errors import Conflict, InvalidArgument, LimitExceeded, Unavailable
from atoll.model.event import Event
from atoll.model.lifecycle import EndReason, State
from atoll.model.quota import Quota
from atoll.model.resources import Resources
from atoll.model.snapshot import Snapshot, SnapshotState
from atoll.model.usage import Prices
from atoll.testing.clock import START
from atoll.testing.postgres import Postgres
from tests.contract.records import NO_QUOTA, record

pytestmark = pytest.mark.anyio


async def test_only_a_snapshot_that_is_whole_expires(store: Store) -> None:
    """One in the making, or that forks are made from, is in somebody's hands."""
    made: dict[SnapshotState, Snapshot] = {}
    for number, state in enumerate(SnapshotState):
        made[state] = Snapshot(
            id=ids.mint(ids.SNAPSHOT, 0, number.to_bytes(16, "big")),
            name=None,
            sandbox_id="",
            template="code",
            resources=Resources(),
            has_memory=False,
            state=state,
            created_at=START,
            expires_at=START + timedelta(seconds=number),
        )
        await store.write(snapshots.add, snapshots.SnapshotRecord("me", made[state]))
    ready = made[SnapshotState.READY]
    assert await store.read(snapshots.next_expiry) == ready.expires_at
    assert await store.read(snapshots.expired, START + timedelta(seconds=60)) == [ready.id]
    await store.write(snapshots.remove, ready.id)
    assert await store.read(snapshots.next_expiry) is None


async def test_keys_that_have_ended_are_forgotten_but_for_the_newest(store: Store) -> None:
    """Never what is valid, the first of all, or the one that the caller names."""

    def key(number: int, **ended: Any) -> keys.KeyRecord:
        name = f"ak{number}"
        return keys.KeyRecord(name, "me", name, f"h{number}", frozenset({"read"}), START, **ended)

    for number in range(8):
        await store.write(keys.add, key(number, expires_at=START + timedelta(seconds=number)))
    await store.write(keys.add, key(8))
    await store.write(keys.revoke, "me", "ak7", START)

    async def left() -> list[str]:
        return [one.id for one in await store.read(keys.of_owner, "me")]

    await store.write(keys.trim_ended, "me", START + timedelta(seconds=6), 3, "h2")
    assert await left() == ["ak0", "ak2", "ak4", "ak5", "ak6", "ak8"]
    assert await store.write(keys.forget_ended, START + timedelta(seconds=5), "h2") == 2
    assert await left() == ["ak0", "ak2", "ak6", "ak8"]


async def test_rows_come_back_as_they_were(store: Store) -> None:
    one = record(1, name="one")
    await store.write(rows.add, one)
    assert await store.read(rows.by_id, one.sandbox.id) == one
    assert await store.read(rows.by_live_name, "me", "one") == one
    assert await store.read(rows.by_live_name, "you", "one") is None
    assert await store.read(rows.by_id, "nobody") is None


async def test_only_one_of_two_finds_the_old_state(store: Store) -> None:
    one = record(1)
    await store.write(rows.add, one)
    won: list[bool] = []

    async def move(target: State) -> None:
        won.append(await store.write(rows.move, one.sandbox.id, State.CREATING, target, {}))

    async with anyio.create_task_group() as tasks:
        for target in (State.RUNNING, State.ENDING, State.FAILED):
            tasks.start_soon(move, target)
    assert sorted(won) == [False, False, True]


async def test_a_name_is_unique_among_the_live(store: Store) -> None:
    await store.write(rows.add, record(1, name="x"))
    with pytest.raises(Conflict):
        await store.write(rows.add, record(2, name="x"))
    await store.write(rows.add, record(3, name="x", owner="you"))
    await store.write(rows.move, record(1).sandbox.id, State.CREATING, State.FAILED, {"ended_us": 1})
    await store.write(rows.add, record(4, name="x"))


async def test_a_transaction_that_fails_leaves_nothing(store: Store) -> None:
    def half(connection: sa.Connection) -> None:
        rows.add(connection, record(1))
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        await store.write(half)
    assert await store.read(rows.live) == []


async def test_writes_that_come_together_are_one_transaction_and_each_is_all_or_nothing(store: Store) -> None:
    begun, may_go = threading.Event(), threading.Event()
    commits: list[None] = []
    sa.event.listen(store._engine, "commit", lambda _connection: commits.append(None))
    failed: list[BaseException] = []

    def first(_: sa.Connection) -> None:
        begun.set()
        assert may_go.wait(10)

    def half(connection: sa.Connection) -> None:
        rows.add(connection, record(2))
        raise RuntimeError("in the middle")

    async def fail() -> None:
        with pytest.raises(RuntimeError) as caught:
            await store.write(half)
        failed.append(caught.value)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.write, first)
        await anyio.to_thread.run_sync(begun.wait)
        tasks.start_soon(store.write, rows.add, record(1))
        tasks.start_soon(fail)
        tasks.start_soon(store.write, rows.add, record(3))
        await anyio.wait_all_tasks_blocked()
        may_go.set()
    assert len(failed) == 1
    assert {one.sandbox.id for one in await store.read(rows.live)} == {record(n).sandbox.id for n in (1, 3)}
    assert len(commits) == 2, "the first alone, and then all that had come meanwhile"


async def test_a_commit_that_fails_fails_all_that_were_in_it(store: Store) -> None:
    begun, may_go = threading.Event(), threading.Event()
    refused: list[str] = []
    commits = iter(("of the first", "of the others"))

    def first(_: sa.Connection) -> None:
        begun.set()
        assert may_go.wait(10)

    def refuse(_connection: object) -> None:
        if next(commits) == "of the others":
            raise sa.exc.OperationalError("COMMIT", None, sqlite3.OperationalError("disk I/O error"))

    sa.event.listen(store._engine, "commit", refuse)

    async def add(number: int) -> None:
        try:
            await store.write(rows.add, record(number))
        except Unavailable as error:
            refused.append(error.code)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.write, first)
        await anyio.to_thread.run_sync(begun.wait)
        tasks.start_soon(add, 1)
        tasks.start_soon(add, 2)
        await anyio.wait_all_tasks_blocked()
        may_go.set()
    assert refused == ["database_unavailable"] * 2
    assert await store.read(rows.live) == []
    sa.event.remove(store._engine, "commit", refuse)
    await store.write(rows.add, record(1))  # and the writer goes on


async def test_pages_go_on_where_the_last_one_ended(store: Store) -> None:
    for number in range(10):
        await store.write(rows.add, record(number, age_s=number // 2))
    seen: list[str] = []
    after: Position | None = None
    while page := await store.read(rows.page, Filter("me"), after, 3):
        seen += [item.sandbox.id for item in page]
        last = page[-1].sandbox
        after = Position(to_us(last.created_at), last.id)
    assert len(seen) == len(set(seen)) == 10
    newest_first = [item.sandbox.created_at for item in await store.read(rows.page, Filter("me"), None, 10)]
    assert newest_first == sorted(newest_first, reverse=True)


async def test_deadlines_are_exact_to_the_microsecond(store: Store) -> None:
    one = record(1)
    await store.write(rows.add, one)
    await store.write(rows.move, one.sandbox.id, State.CREATING, State.RUNNING, {})
    due = one.sandbox.deadline_at
    assert await store.read(rows.next_deadline) == due
    assert await store.read(rows.overdue, due - timedelta(microseconds=1)) == []
    assert await store.read(rows.overdue, due) == [one.sandbox.id]


async def test_a_database_that_is_locked_for_long_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DATABASE_BUSY_S", 0.05)
    async with Store.open(sqlite_url(tmp_path / "db")) as store:
        stranger = sqlite3.connect(tmp_path / "db", isolation_level=None)
        stranger.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable) as caught:
            await store.write(rows.add, record(1))
        assert caught.value.code == "database_unavailable"
        assert await store.read(rows.live) == []  # readers go on
        stranger.execute("ROLLBACK")
        stranger.close()
        await store.write(rows.add, record(1))


async def test_a_server_that_was_restarted_is_found_again(postgres: Postgres) -> None:
    """While it is away the answer is that it is; afterwards nobody has to do anything."""
    async with Store.open(postgres.database()) as store:
        await store.write(rows.add, record(1))
        postgres.stop()
        try:
            for attempt in (store.read(rows.live), store.write(rows.add, record(2))):
                with pytest.raises(Unavailable) as caught:
                    await attempt
                assert caught.value.code == "database_unavailable"
        finally:
            postgres.start()
        await store.write(rows.add, record(2))
        assert len(await store.read(rows.live)) == 2


async def test_an_address_that_is_none_is_refused() -> None:
    for url in ("nonsense", "mysql://x", "postgresql+nothing://x"):
        with pytest.raises(InvalidArgument) as caught:
            async with Store.open(url):
                pass
        assert caught.value.code == "invalid_settings"


@pytest.mark.parametrize("text", ["half a character \ud800", "a NUL \0"])
async def test_what_cannot_be_kept_is_refused_and_not_found(url: str, text: str) -> None:
    async with Store.open(url) as store:
        with contextlib.suppress(InvalidArgument):
            assert await store.read(rows.by_live_name, "me", text) is None


async def test_of_many_who_count_and_then_add_exactly_as_many_get_in_as_there_is_room(url: str) -> None:
    """Two servers on one database, forty creates at once, room for seven."""
    allowance = Allowance(Quota(sandboxes=7), Quota(), Prices())
    let_in: list[int] = []
    refused: list[int] = []

    async def add(store: Store, number: int) -> None:
        try:
            await store.write(creates.create, record(number), event(f"sb{number}"), allowance, None)
            let_in.append(number)
        except LimitExceeded:
            refused.append(number)

    async with Store.open(url) as first, Store.open(url) as second:
        async with anyio.create_task_group() as tasks:
            for number in range(40):
                tasks.start_soon(add, (first, second)[number % 2], number)
        assert (len(let_in), len(refused)) == (7, 33)
        assert len(await first.read(rows.live)) == 7


async def test_of_many_with_one_key_one_makes_it_and_the_others_find_it(url: str) -> None:
    once = Once("k", "hash")
    made: list[str] = []
    found: list[str] = []

    async def add(store: Store, number: int) -> None:
        earlier = await store.write(creates.create, record(number), event(f"sb{number}"), NO_QUOTA, once)
        (found if earlier else made).append(earlier.sandbox.id if earlier else record(number).sandbox.id)

    async with Store.open(url) as first, Store.open(url) as second:
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(add, (first, second)[number % 2], number)
        assert len(made) == 1
        assert set(found) == set(made)
        with pytest.raises(Conflict) as caught:
            await first.write(creates.create, record(50), event("x"), NO_QUOTA, Once("k", "other"))
        assert caught.value.code == "idempotency_conflict"
        assert await first.write(creates.create, replace(record(51), owner="you"), event("x"), NO_QUOTA, once) is None


async def test_a_key_of_a_create_that_failed_or_is_old_is_free_again(store: Store) -> None:
    once = Once("k", "hash")
    await store.write(creates.create, record(1), event("a"), NO_QUOTA, once)
    failed = {"ended_us": 1, "end_reason": EndReason.START_FAILED.value}
    await store.write(rows.move, record(1).sandbox.id, State.CREATING, State.FAILED, failed)
    assert await store.write(creates.create, record(2), event("b"), NO_QUOTA, once) is None
    late = record(3, age_s=-limits.IDEMPOTENCY_KEPT_S - 1)
    assert await store.write(creates.create, late, event("c"), NO_QUOTA, Once("k", "other")) is None


def event(target: str, action: str = "sandbox.creating", owner: str = "me") -> Event:
    return Event(at=START, owner=owner, actor="ak", action=action, target=target)


async def test_followers_miss_no_event_whoever_writes(url: str) -> None:
    """Numbers are in the order of commits, on either database: whoever reads after a number misses nothing."""
    seen: list[int] = []

    async with Store.open(url) as first, Store.open(url) as second:

        async def follow() -> None:
            last = 0
            while len(seen) < 60:
                found = await first.read(events.after, EventFilter("me"), last, 10)
                seen.extend(one.number for one in found)
                last = seen[-1] if seen else 0
                await anyio.sleep(0)

        async def write(store: Store, number: int) -> None:
            await store.write(events.add, event(f"sb{number}"))

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow)
                for number in range(60):
                    tasks.start_soon(write, (first, second)[number % 2], number)
        assert seen == sorted(seen)
        assert len(set(seen)) == 60


async def test_events_are_found_by_what_they_are_about(store: Store) -> None:
    await store.write(events.add, event("a", "sandbox.running"))
    await store.write(events.add, event("a", "sandbox.killed"))
    await store.write(events.add, event("b", "key.created"))
    await store.write(events.add, event("c", "sandbox.running", owner="you"))

    async def found(**filters: Any) -> list[tuple[str, str]]:
        wanted = EventFilter(**{"owner": "me", **filters})
        return [(one.target, one.action) for one in await store.read(events.latest, wanted, 10)]

    assert len(await found()) == 3
    assert await found(actions=("sandbox.*",)) == [("a", "sandbox.running"), ("a", "sandbox.killed")]
    assert await found(actions=("key.created", "sandbox.killed")) == [("a", "sandbox.killed"), ("b", "key.created")]
    assert await found(target="b") == [("b", "key.created")]
    assert await found(actions=("sand%",)) == []
    assert len(await found(owner=None)) == 4
    assert await store.write(events.forget, START + timedelta(seconds=1)) == 4


async def test_a_delivery_is_on_record_with_its_event_and_sent_by_one(store: Store) -> None:
    await store.write(webhooks.add, Webhook("wh1", "me", "http://x", "s", ("sandbox.killed",), START))
    await store.write(webhooks.add, Webhook("wh2", "you", "http://x", "s", (), START))
    await store.write(events.add, event("a", "sandbox.running"))
    await store.write(events.add, event("a", "sandbox.killed"))
    (due,) = await store.read(webhooks.due, START, 10)
    assert due.webhook_id == "wh1"
    claims: list[bool] = []

    async def claim() -> None:
        claims.append(await store.write(webhooks.claim, due, START + timedelta(seconds=20)))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(claim)
    assert sorted(claims) == [False, False, False, False, True]
    assert await store.read(webhooks.due, START, 10) == []
    assert await store.write(webhooks.remove, "me", "wh1", START)
    assert await store.read(webhooks.deliveries, "wh1", 10) == []


async def test_a_tenant_s_name_is_used_once(store: Store) -> None:
    await store.write(tenants.add, Tenant("team", START, Quota(sandboxes=3)))
    found = await store.read(tenants.by_id, "team")
    assert found == Tenant("team", START, Quota(sandboxes=3))
    await store.write(tenants.remove, "team", START)
    with pytest.raises(Conflict):
        await store.write(tenants.add, Tenant("team", START))


async def test_an_external_id_is_used_once_by_each_owner(store: Store) -> None:
    def known(number: int, owner: str = "me") -> Record:
        one = record(number, owner=owner)
        return replace(one, sandbox=replace(one.sandbox, external_id="theirs"))

    await store.write(rows.add, known(1))
    await store.write(rows.move, known(1).sandbox.id, State.CREATING, State.FAILED, {"ended_us": 1})
    with pytest.raises(Conflict) as caught:
        await store.write(rows.add, known(2))
    assert caught.value.code == "id_taken"
    await store.write(rows.add, known(3, owner="you"))
    found = await store.read(rows.by_external_id, "me", "theirs")
    assert found is not None
    assert found.sandbox.id == known(1).sandbox.id
