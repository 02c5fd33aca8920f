"""Backup and restore of a record, from and to SQLite and PostgreSQL, each for real."""

from __future__ import annotations

import errno
import functools
import io
import os
import random
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

import pytest
from sqlalchemy import Connection, Table, select

from atoll.app import backup as backups
from atoll.app.settings import Settings
from atoll.control.store import events
from atoll.control.store import sandboxes as rows
from atoll.control.store.engine import Store, sqlite_url
from atoll.control.store.sandboxes import Record
from atoll.control.store.schema import metadata
from atoll.control.store.tenants import Tenant, ensure
from atoll.model.errors import AtollError, Conflict, InvalidArgument, OutOfSpace, Unavailable
from atoll.model.event import Event
from atoll.testing.clock import START
from tests.contract.records import record

pytestmark = pytest.mark.anyio

MakeSettings = Callable[[str], Settings]
FILES = {"key": b"k", "secrets.key": b"s", "export.key": b"e", "ca/localhost.pem": b"c"}
KINDS = ["sqlite", "postgresql"]


@pytest.fixture
def make_settings(tmp_path: Path, request: pytest.FixtureRequest) -> MakeSettings:
    """Settings of a server of its own on a database of this kind."""
    made = iter(range(10))

    def make(kind: str) -> Settings:
        data = tmp_path / f"data{next(made)}"
        data.mkdir()
        database = "" if kind == "sqlite" else request.getfixturevalue("postgres").database()
        return Settings(data=data, database=database)

    return make


def url_of(settings: Settings) -> str:
    return settings.database or sqlite_url(settings.data / "atoll.db")


def event(action: str) -> Event:
    return Event(at=START, owner="me", actor="ak", action=action)


async def fill(store: Store, *names: str) -> list[Record]:
    made = [record(number, name=name) for number, name in enumerate(names)]
    await store.write(ensure, Tenant("me", START))
    for one in made:
        await store.write(rows.add, one)
        await store.write(events.add, event(f"made {one.sandbox.name}"))
    return made


async def everything(store: Store) -> dict[str, list[Any]]:
    found = {}
    for table in metadata.sorted_tables:
        found[table.name] = await store.read(_rows, table)
    return found


def _rows(connection: Connection, table: Table) -> list[Any]:
    return sorted(tuple(row) for row in connection.execute(select(table)))


@pytest.mark.parametrize("source_kind", KINDS)
@pytest.mark.parametrize("target_kind", KINDS)
async def test_a_record_goes_from_any_database_to_any(
    make_settings: MakeSettings, tmp_path: Path, source_kind: str, target_kind: str
) -> None:
    """Taken while somebody writes; what comes after a restore is numbered after what was restored."""
    source, target = make_settings(source_kind), make_settings(target_kind)
    for name, content in FILES.items():
        (source.data / name).parent.mkdir(exist_ok=True)
        (source.data / name).write_bytes(content)
    (source.data / "server.json").write_text("not a part")
    archive = tmp_path / "backup"
    async with Store.open(url_of(source)) as store:
        made = await fill(store, "ü", "b", "c")
        backups.backup(source, archive)
        before = await everything(store)
        await store.write(events.add, event("too late"))
    backups.restore(target, archive, replace=False)
    assert {name: (target.data / name).read_bytes() for name in FILES} == FILES
    assert all((target.data / name).stat().st_mode & 0o777 == 0o600 for name in FILES)
    assert not (target.data / "server.json").exists()
    async with Store.open(url_of(target)) as store:
        assert await everything(store) == before
        assert await store.read(rows.by_id, made[0].sandbox.id) == made[0]
        await store.write(events.add, event("next"))
        assert await store.read(events.last_number) == 4
    with pytest.raises(Conflict) as caught:
        backups.restore(target, archive, replace=False)
    assert caught.value.code == "record_exists"
    backups.restore(target, archive, replace=True)
    async with Store.open(url_of(target)) as store:
        assert await everything(store) == before
    assert not [one for one in target.data.iterdir() if one.name.startswith((".restore", ".backup", "restored"))]


WRITES_MAX = 100_000


@contextmanager
def busy(database: Path) -> Iterator[Thread]:
    """Somebody who writes to a large database without a pause, so often and no oftener."""
    begun, done = Flag(), Flag()

    def write() -> None:
        with closing(sqlite3.connect(database, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous=OFF")
            for number in range(WRITES_MAX):
                connection.execute("INSERT INTO ballast VALUES (?)", (number.to_bytes(4, "big"),))
                if not number:
                    begun.set()
                if done.is_set():
                    return

    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("CREATE TABLE ballast (content BLOB)")
        connection.executemany("INSERT INTO ballast VALUES (?)", [(bytes(100_000),)] * 400)
    writer = Thread(target=write)
    writer.start()
    try:
        begun.wait()
        yield writer
    finally:
        done.set()
        writer.join()


async def test_a_backup_of_a_database_that_is_never_left_in_peace_comes_to_an_end(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    settings = make_settings("sqlite")
    async with Store.open(url_of(settings)) as store:
        await fill(store, "a")
    with busy(settings.data / "atoll.db") as writer:
        backups._copy_pages(settings.data / "atoll.db", tmp_path / "copy")
        assert writer.is_alive()
    backups._check(tmp_path / "copy")


def test_what_a_killed_backup_or_restore_left_goes_and_what_one_at_work_uses_stays(make_settings: MakeSettings) -> None:
    settings = make_settings("sqlite")
    left = [settings.data / name for name in (".backup-a", ".restore-b")]
    for folder in left:
        (folder / "parts").mkdir(parents=True)
    with backups._shared(settings.data):
        backups.finish(settings)
        assert all(folder.exists() for folder in left)
    backups.finish(settings)
    assert not list(settings.data.iterdir())


@pytest.mark.parametrize(
    ("kind", "step"), [*(("sqlite", step) for step in range(1, 9)), *(("postgresql", step) for step in (1, 3, 4, 5))]
)
async def test_a_restore_that_was_cut_short_is_finished_by_whoever_comes_next(
    make_settings: MakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, step: int
) -> None:
    """At each change that it makes: before the one that decides the old record is whole, afterwards the new one."""
    source, target = make_settings("sqlite"), make_settings(kind)
    archive = tmp_path / "backup"
    for settings, names in ((source, ("new",)), (target, ("old", "older"))):
        (settings.data / "key").write_text(names[0])
        (settings.data / "secrets.key").write_text(names[0])
        async with Store.open(url_of(settings)) as store:
            await fill(store, *names)
    backups.backup(source, archive)
    done = 0

    def dying(act: Callable[..., Any]) -> Callable[..., Any]:
        def maybe(*arguments: Any, **options: Any) -> Any:
            nonlocal done
            done += 1
            if done == step:
                raise KeyboardInterrupt
            return act(*arguments, **options)

        return maybe

    with monkeypatch.context() as patched:
        for owner, name in ((Path, "rename"), (Path, "replace"), (Path, "unlink"), (backups, "copy_database")):
            patched.setattr(owner, name, dying(getattr(owner, name)))
        patched.setattr(shutil, "rmtree", dying(shutil.rmtree))
        try:
            backups.restore(target, archive, replace=True)
            died = False
        except KeyboardInterrupt:
            died = True
    backups.finish(target)
    expected = "old" if died and step == 1 else "new"
    assert {(target.data / name).read_text() for name in ("key", "secrets.key")} == {expected}
    async with Store.open(url_of(target)) as store:
        found = await store.read(rows.live)
    assert {one.sandbox.name for one in found} == ({"old", "older"} if expected == "old" else {"new"})
    assert not (target.data / "restored").exists()


def _outdate(connection: Connection) -> None:
    connection.exec_driver_sql("UPDATE alembic_version SET version_num = 'x'")


async def test_a_database_of_another_version_or_none_is_refused(make_settings: MakeSettings, tmp_path: Path) -> None:
    settings = make_settings("postgresql")
    with pytest.raises(InvalidArgument) as nothing:
        backups.backup(settings, tmp_path / "a")
    assert nothing.value.code == "no_record"
    async with Store.open(settings.database) as store:
        await fill(store, "a")
        await store.write(_outdate)
    with pytest.raises(AtollError) as other:
        backups.backup(settings, tmp_path / "a")
    assert other.value.code == "other_version"
    assert not (tmp_path / "a").exists()


async def test_what_the_disk_says_is_an_error_with_a_code(
    make_settings: MakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a command nor a start of a server ends in a traceback, and no half archive stays."""
    settings = make_settings("sqlite")
    async with Store.open(url_of(settings)) as store:
        await fill(store, "a")
    archive = tmp_path / "whole"
    backups.backup(settings, archive)

    def failing(number: int) -> Callable[..., Any]:
        def fail(*_arguments: Any, **_options: Any) -> Any:
            raise OSError(number, os.strerror(number))

        return fail

    def told(owner: Any, name: str, number: int, run: Callable[[], Any]) -> str:
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, failing(number))
            with pytest.raises(AtollError) as caught:
                run()
        return caught.value.code

    back_up = functools.partial(backups.backup, settings, tmp_path / "a")
    restore = functools.partial(backups.restore, settings, archive, replace=True)
    for number, code in ((errno.ENOSPC, "no_room"), (errno.EACCES, "data_unusable")):
        assert told(tempfile, "mkdtemp", number, back_up) == code
        assert not (tmp_path / "a").exists()
        assert told(Path, "rename", number, restore) == code
    assert told(shutil, "copyfileobj", errno.ENOSPC, restore) == "no_room"
    assert told(Path, "glob", errno.EACCES, functools.partial(backups.finish, settings)) == "data_unusable"


async def test_sqlite_without_room_for_the_copy_is_told_so(
    make_settings: MakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = make_settings("sqlite")
    async with Store.open(url_of(settings)) as store:
        await fill(store, "a")

    def fill_up(*_arguments: Any) -> None:
        with closing(sqlite3.connect(tmp_path / "small", isolation_level=None)) as connection:
            connection.execute("PRAGMA max_page_count=2")
            connection.execute("CREATE TABLE ballast (content BLOB)")
            connection.execute("INSERT INTO ballast VALUES (zeroblob(100000))")

    monkeypatch.setattr(backups, "_copy_pages", fill_up)
    with pytest.raises(OutOfSpace) as caught:
        backups.backup(settings, tmp_path / "a")
    assert caught.value.code == "no_room"


@pytest.mark.parametrize("content", [b"no database at all" * 100, b""])
def test_a_file_that_is_no_database_is_not_backed_up(
    make_settings: MakeSettings, tmp_path: Path, content: bytes
) -> None:
    settings = make_settings("sqlite")
    (settings.data / "atoll.db").write_bytes(content)
    with pytest.raises(InvalidArgument) as caught:
        backups.backup(settings, tmp_path / "a")
    assert (caught.value.code, (tmp_path / "a").exists()) == ("bad_backup", False)


async def test_a_data_directory_that_is_missing_is_told_so(make_settings: MakeSettings, tmp_path: Path) -> None:
    settings = make_settings("postgresql")
    async with Store.open(settings.database) as store:
        await fill(store, "a")
    settings.data.rmdir()
    with pytest.raises(Unavailable) as caught:
        backups.backup(settings, tmp_path / "a")
    assert (caught.value.code, (tmp_path / "a").exists()) == ("data_unusable", False)


def test_an_archive_that_is_damaged_inside_is_refused(make_settings: MakeSettings, tmp_path: Path) -> None:
    """Its compression may be damaged behind a head that can be read."""
    settings = make_settings("sqlite")
    archive = tmp_path / "a"
    with tarfile.open(archive, "w:gz") as file:
        content = random.Random(1).randbytes(100_000)
        member = tarfile.TarInfo("atoll.db")
        member.size = len(content)
        file.addfile(member, io.BytesIO(content))
    damaged = bytearray(archive.read_bytes())
    damaged[1000:2000] = bytes(1000)
    archive.write_bytes(damaged)
    with pytest.raises(InvalidArgument) as caught:
        backups.restore(settings, archive, replace=False)
    assert caught.value.code == "bad_backup"
