"""Keys: recognised, unknown, expired, revoked, of members and tenants, and the first one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from atoll.control.authz import ALL_SCOPES, Principal, check_scopes
from atoll.control.events import Events
from atoll.control.keys import Keys, KeySpec
from atoll.control.refusallog import Refusal
from atoll.control.store import keys as rows
from atoll.control.store import tenants as tenant_rows
from atoll.control.store.engine import Store, sqlite_url
from atoll.control.store.events import EventFilter
from atoll.control.store.tenants import Tenant
from atoll.model import limits
from atoll.model.errors import (
    Forbidden,
    Internal,
    InvalidArgument,
    LimitExceeded,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from atoll.model.quota import Quota
from atoll.telemetry import Metrics
from atoll.testing.clock import START, VirtualClock
from atoll.wire import token

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with Store.open(sqlite_url(tmp_path / "db")) as store:
        await store.write(tenant_rows.add, Tenant("me", START))
        yield store


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def keys(store: Store, clock: VirtualClock) -> Keys:
    return Keys(store, clock, Events(store, clock, Metrics()))


ADMIN = Principal("me", "ak0", ALL_SCOPES)


async def test_a_key_is_recognised_and_only_its_hash_is_kept(keys: Keys, tmp_path: Path) -> None:
    record, key = await keys.create(ADMIN, "me", KeySpec("laptop"))
    for _ in range(2):  # the second time from memory
        principal = await keys.authenticate(key)
        assert (principal.owner, principal.key_id) == ("me", record.id)
    for path in tmp_path.iterdir():
        assert key.encode() not in path.read_bytes()


@pytest.mark.parametrize("key", ["", "atoll_", "atoll_" + "A" * 43, "Bearer x", "atoll_" + "é" * 43])
async def test_what_is_no_key_is_refused(keys: Keys, key: str) -> None:
    with pytest.raises(Unauthenticated):
        await keys.authenticate(key)


async def test_a_revoked_key_opens_nothing_from_that_moment_on(keys: Keys) -> None:
    record, key = await keys.create(ADMIN, "me", KeySpec("laptop"))
    await keys.authenticate(key)
    assert (await keys.revoke(ADMIN, "me", record.id)).revoked_at is not None
    with pytest.raises(Unauthenticated) as caught:
        await keys.authenticate(key)
    assert caught.value.code == "key_revoked"
    first = await keys.revoke(ADMIN, "me", record.id)
    assert first == await keys.revoke(ADMIN, "me", record.id)
    for owner, key_id in (("other", record.id), ("me", "ak" + "0" * 36), ("me", "x\0")):
        with pytest.raises(NotFound):
            await keys.revoke(ADMIN, owner, key_id)


async def test_what_was_read_before_a_key_was_revoked_is_not_kept(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asked before is let in; nobody who comes after."""
    record, key = await keys.create(ADMIN, "me", KeySpec("laptop"))
    read = keys._store.read

    async def read_slowly(*arguments: Any) -> Any:
        monkeypatch.undo()
        found = await read(*arguments)
        await keys.revoke(ADMIN, "me", record.id)
        return found

    monkeypatch.setattr(keys._store, "read", read_slowly)
    await keys.authenticate(key)
    with pytest.raises(Unauthenticated):
        await keys.authenticate(key)


async def test_an_expired_key_opens_nothing_even_if_it_was_just_used(keys: Keys, clock: VirtualClock) -> None:
    _, key = await keys.create(ADMIN, "me", KeySpec("short", expires_at=START + timedelta(seconds=10)))
    await keys.authenticate(key)
    await clock.advance(10)
    with pytest.raises(Unauthenticated) as caught:
        await keys.authenticate(key)
    assert caught.value.code == "key_expired"


async def test_a_key_that_opens_nothing_is_told_of_with_whose_it_was(keys: Keys, clock: VirtualClock) -> None:
    """An unknown one to the operator, once for each thing that is sent, whether it looks like a key or not."""
    told: list[Refusal] = []
    keys.on_refused = told.append
    short, expired = await keys.create(ADMIN, "me", KeySpec("short", expires_at=START + timedelta(seconds=10)))
    old, revoked = await keys.create(ADMIN, "me", KeySpec("old"))
    await keys.authenticate(expired, "192.0.2.1")
    await keys.revoke(ADMIN, "me", old.id)
    await clock.advance(10)
    for key in (expired, revoked, "x", token.key_mint(bytes(token.CHANCE_BYTES))):
        with pytest.raises(Unauthenticated):
            await keys.authenticate(key, "192.0.2.1")
    assert told == [
        Refusal("key_expired", "192.0.2.1", "me", short.id),
        Refusal("key_revoked", "192.0.2.1", "me", old.id),
        Refusal("unauthenticated", "192.0.2.1", "default", "unknown"),
        Refusal("unauthenticated", "192.0.2.1", "default", "unknown"),
    ]


async def test_last_use_is_remembered(keys: Keys, clock: VirtualClock) -> None:
    record, key = await keys.create(ADMIN, "me", KeySpec("laptop"))
    assert [one.last_used_at for one in await keys.every("me")] == [None]
    await clock.advance(5)
    await keys.authenticate(key)
    (shown,) = await keys.every("me")
    assert (shown.id, shown.last_used_at) == (record.id, START + timedelta(seconds=5))


async def test_scopes_of_a_key_are_those_of_its_member_at_most(keys: Keys, store: Store) -> None:
    member = tenant_rows.Member("mb1", "me", "ann", check_scopes({"write"}), START)
    await store.write(tenant_rows.member_add, member)
    record, key = await keys.create(ADMIN, "me", KeySpec("of ann", member="ann"))
    assert record.member_id == "mb1"
    assert (await keys.authenticate(key)).scopes == {"read", "write"}
    await store.write(tenant_rows.member_remove, "me", "mb1", START)
    keys.forget()
    with pytest.raises(Unauthenticated):
        await keys.authenticate(key)
    with pytest.raises(NotFound):
        await keys.create(ADMIN, "me", KeySpec("of bob", member="bob"))


async def test_keys_of_a_removed_tenant_open_nothing(keys: Keys, store: Store) -> None:
    _, key = await keys.create(ADMIN, "me", KeySpec("laptop"))
    await store.write(tenant_rows.remove, "me", START)
    with pytest.raises(Unauthenticated):
        await keys.authenticate(key)


@pytest.mark.parametrize(
    "spec",
    [
        KeySpec(""),
        KeySpec("a\nb"),
        KeySpec("x" * 101),
        KeySpec("x", scopes=frozenset()),
        KeySpec("x", scopes=frozenset({"root"})),
        KeySpec("x", expires_at=START),
        KeySpec("x", quota=Quota(budget_s=5)),
        KeySpec("x", quota=Quota(budget_money=5)),
    ],
)
async def test_a_key_that_makes_no_sense_is_refused(keys: Keys, spec: KeySpec) -> None:
    with pytest.raises(InvalidArgument):
        await keys.create(ADMIN, "me", spec)


async def test_a_key_cannot_give_more_than_it_has(keys: Keys) -> None:
    with pytest.raises(Forbidden):
        await keys.create(replace(ADMIN, scopes=check_scopes({"write"})), "me", KeySpec("x"))


async def test_keys_are_bounded(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KEYS_PER_TENANT_MAX", 2)
    record, _ = await keys.create(ADMIN, "me", KeySpec("1"))
    await keys.create(ADMIN, "me", KeySpec("2"))
    with pytest.raises(LimitExceeded):
        await keys.create(ADMIN, "me", KeySpec("3"))
    await keys.revoke(ADMIN, "me", record.id)
    await keys.create(ADMIN, "me", KeySpec("3"))


async def test_who_makes_and_revokes_keys_without_end_fills_nothing(
    keys: Keys, store: Store, clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest that have ended are shown; what is valid stays, and so does the key in the server's file."""
    monkeypatch.setattr(limits, "KEYS_ENDED_PER_TENANT_MAX", 2)
    await keys.ensure_first(tmp_path / "key")
    await keys.create(ADMIN, "me", KeySpec("valid"))
    for number in range(6):
        await clock.advance(1)
        record, _ = await keys.create(ADMIN, "me", KeySpec(str(number)))
        await keys.revoke(ADMIN, "me", record.id)
    await clock.advance(1)
    short = KeySpec("short", expires_at=clock.now() + timedelta(seconds=10))
    await keys.create(ADMIN, "me", short)
    assert [one.name for one in await keys.every("me")] == ["valid", "4", "5", "short"]
    await clock.advance(limits.KEYS_ENDED_KEPT_S)
    await keys.forget_ended()
    assert [one.name for one in await keys.every("me")] == ["valid", "short"]
    await clock.advance(10)
    await keys.forget_ended()
    assert [one.name for one in await keys.every("me")] == ["valid"]
    assert await store.read(rows.count) == 2


async def test_a_first_key_that_was_revoked_is_not_taken_for_a_new_one_later(
    keys: Keys, store: Store, clock: VirtualClock, tmp_path: Path
) -> None:
    """Its file is still there, also where an operator has put another one than the first of all in it."""
    path = tmp_path / "key"
    await keys.ensure_first(path)
    (first,) = await keys.every("default")
    await clock.advance(1)
    record, second = await keys.create(None, "default", KeySpec("second"))
    path.write_text(second)
    later = Keys(store, clock, keys._events)
    await later.ensure_first(path)
    for key_id in (first.id, record.id):
        await later.revoke(ADMIN, "default", key_id)
    await clock.advance(2 * limits.KEYS_ENDED_KEPT_S)
    await later.forget_ended()
    again = Keys(store, clock, keys._events)
    await again.ensure_first(path)
    with pytest.raises(Unauthenticated) as caught:
        await again.authenticate(second)
    assert caught.value.code == "key_revoked"
    assert await store.read(rows.count) == 2


async def test_last_use_is_written_when_the_database_is_back(
    keys: Keys, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, key = await keys.create(ADMIN, "me", KeySpec("laptop"))
    await keys.authenticate(key)

    async def away(*_arguments: Any) -> None:
        raise Unavailable("the database does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(keys._store, "write", away)
        with pytest.raises(Unavailable):
            await keys.flush_used()
    (shown,) = await keys.every("me")
    assert shown.last_used_at == clock.now()


async def test_the_first_key_is_made_once_and_private(keys: Keys, store: Store, tmp_path: Path) -> None:
    path = tmp_path / "key"
    await keys.ensure_first(path)
    key = path.read_text().strip()
    assert path.stat().st_mode & 0o777 == 0o600
    await keys.ensure_first(path)
    assert path.read_text().strip() == key
    assert (await keys.authenticate(key)).owner == "default"
    assert await store.read(rows.count) == 1
    path.unlink()
    await keys.ensure_first(path)  # taken away on purpose: none is made again
    assert not path.exists()


async def test_a_key_in_the_file_that_the_database_lacks_is_adopted(keys: Keys, tmp_path: Path) -> None:
    path = tmp_path / "key"
    key = "atoll_" + "k" * 43
    path.write_text(key + "\n")
    await keys.ensure_first(path)
    assert (await keys.authenticate(key)).owner == "default"


async def test_a_file_that_holds_no_key_is_reported(keys: Keys, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("something else")
    with pytest.raises(Internal, match="does not hold an API key"):
        await keys.ensure_first(path)


async def test_what_is_done_with_keys_is_in_the_audit_log(world: Any) -> None:
    keys = world.control.accounts.keys
    record, _ = await keys.create(world.me, "default", KeySpec("laptop"))
    await keys.revoke(world.me, "default", record.id)
    found = await world.control.accounts.events.page(EventFilter("default", actions=("key.*",)), None, 10)
    assert [(event.action, event.target, event.actor) for event in found.items] == [
        ("key.created", record.id, "ak"),
        ("key.revoked", record.id, "ak"),
    ]


async def test_what_waited_while_its_key_was_revoked_does_not_open(keys: Keys) -> None:
    """A sandbox may take a minute to wake up, and its caller be dismissed meanwhile."""
    record, _ = await keys.create(ADMIN, "me", KeySpec("mine"))
    await keys.revoke(ADMIN, "me", record.id)
    with pytest.raises(Unauthenticated) as caught, keys.ends.open_by(record.id):
        pass
    assert caught.value.code == "key_revoked"
