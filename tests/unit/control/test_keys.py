"""Keys: recognised, unknown, and the first one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.control.keys import Keys
from atoll.control.store import keys as rows
from atoll.control.store.engine import Store, sqlite_url
from atoll.model.errors import Internal, Unauthenticated
from atoll.testing.clock import VirtualClock

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with Store.open(sqlite_url(tmp_path / "db")) as store:
        yield store


async def test_a_key_is_recognised_and_only_its_hash_is_kept(store: Store, tmp_path: Path) -> None:
    keys = Keys(store, VirtualClock())
    record, key = await keys.create("me", "laptop")
    for _ in range(2):  # the second time from memory
        principal = await keys.authenticate(key)
        assert (principal.owner, principal.key_id) == ("me", record.id)
    for path in tmp_path.iterdir():
        assert key.encode() not in path.read_bytes()


@pytest.mark.parametrize("key", ["", "atoll_", "atoll_" + "A" * 43, "Bearer x", "atoll_" + "é" * 43])
async def test_what_is_no_key_is_refused(store: Store, key: str) -> None:
    with pytest.raises(Unauthenticated):
        await Keys(store, VirtualClock()).authenticate(key)


async def test_the_first_key_is_made_once_and_private(store: Store, tmp_path: Path) -> None:
    keys = Keys(store, VirtualClock())
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


async def test_a_key_in_the_file_that_the_database_lacks_is_adopted(store: Store, tmp_path: Path) -> None:
    keys = Keys(store, VirtualClock())
    path = tmp_path / "key"
    key = "atoll_" + "k" * 43
    path.write_text(key + "\n")
    await keys.ensure_first(path)
    assert (await keys.authenticate(key)).owner == "default"


async def test_a_file_that_holds_no_key_is_reported(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("something else")
    with pytest.raises(Internal, match="does not hold an API key"):
        await Keys(store, VirtualClock()).ensure_first(path)
