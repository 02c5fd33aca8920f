"""The schema of a database: reached by migrations from any earlier one, and never from a newer one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from atoll.control.store import engine, keys, tenants, usage, webhooks
from atoll.control.store import sandboxes as rows
from atoll.control.store.engine import Store
from atoll.control.store.moments import to_us
from atoll.control.store.schema import NEWEST, metadata
from atoll.model.errors import Conflict
from atoll.model.lifecycle import EndReason

pytestmark = pytest.mark.anyio

OLD_ROWS = """
INSERT INTO sandboxes VALUES ('sb1', 'default', 'code', 'mine', '{"a":"b"}', 1.0, 1, 2, 3, 'running', 1000, 2000, 9000,
    NULL, NULL, '');
INSERT INTO sandboxes VALUES ('sb2', 'team', 'base', NULL, '{}', 1.0, 1, 2, 3, 'killed', 500, 600, 700, 800,
    'deadline', '');
INSERT INTO sandbox_metadata VALUES ('sb1', 'a', 'b');
INSERT INTO api_keys VALUES ('ak1', 'default', 'first', 'cafe', 'admin read write', 100)"""

OLD_HOOKS = """
INSERT INTO webhooks (id, owner, url, secret, actions, created_us, form) VALUES
    ('wh1', 'me', 'https://x.test', 's', 'sandbox.creating sandbox.killed sandbox.failed', 1, 'e2b');
INSERT INTO webhooks (id, owner, url, secret, actions, created_us, form) VALUES
    ('wh2', 'me', 'https://x.test', 's', 'sandbox.creating', 1, 'atoll')"""


def schema_of(connection: sa.Connection) -> dict[str, Any]:
    """Tables, columns and indexes, as the database itself tells them."""
    inspector = sa.inspect(connection)
    found: dict[str, Any] = {}
    for table in inspector.get_table_names():
        if table == "alembic_version":
            continue
        columns = [(c["name"], str(c["type"]), c["nullable"]) for c in inspector.get_columns(table)]
        indexes = [(i["name"], tuple(i["column_names"]), bool(i["unique"])) for i in inspector.get_indexes(table)]
        keys = tuple(inspector.get_pk_constraint(table)["constrained_columns"])
        found[table] = (sorted(columns), sorted(map(str, indexes)), keys)
    return found


def made_at_once(connection: sa.Connection) -> dict[str, Any]:
    metadata.create_all(connection)
    found = schema_of(connection)
    metadata.drop_all(connection)
    return found


async def test_the_migrations_lead_to_the_schema(store: Store) -> None:
    by_steps = await store.read(schema_of)

    def clear(connection: sa.Connection) -> dict[str, Any]:
        metadata.drop_all(connection)
        return made_at_once(connection)

    assert by_steps == await store.write(clear)


async def test_what_is_newest_is_opened_without_looking_for_migrations(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(engine.__file__).parent / "migrations"))
    assert ScriptDirectory.from_config(config).get_current_head() == NEWEST
    async with Store.open(url) as store:
        first = await store.read(schema_of)
    monkeypatch.setitem(sys.modules, "alembic", None)
    async with Store.open(url) as store:
        assert await store.read(schema_of) == first


def migrate(url: str, revision: str, fill: str) -> None:
    """An old database with something in it."""
    old = engine.database_engine(url)
    with old.connect() as connection, connection.begin():
        config = Config()
        config.set_main_option("script_location", str(Path(engine.__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        for statement in filter(None, fill.split(";")):
            connection.exec_driver_sql(statement)
    old.dispose()


async def test_a_database_with_data_is_brought_forward(url: str) -> None:
    """What an earlier version has written is all there, and its owners are tenants."""
    migrate(url, "0001", OLD_ROWS)
    async with Store.open(url) as store:
        first = await store.read(rows.by_id, "sb1")
        assert first is not None
        assert (first.sandbox.name, first.sandbox.metadata, first.sandbox.external_id) == ("mine", {"a": "b"}, None)
        second = await store.read(rows.by_id, "sb2")
        assert second is not None
        assert second.sandbox.end_reason is EndReason.DEADLINE
        bearer = await store.read(keys.bearer, "cafe")
        assert bearer is not None
        assert (bearer.key.name, bearer.key.scopes) == ("first", frozenset({"admin", "read", "write"}))
        assert [tenant.id for tenant in await store.read(tenants.every)] == ["default", "team"]
        # The sandbox that ran is counted from its start on.
        assert [(meter.sandbox_id, to_us(meter.at)) for meter in await store.read(usage.meters)] == [("sb1", 2000)]


async def test_webhooks_in_anothers_form_go_on_hearing_what_they_asked_for(url: str) -> None:
    migrate(url, "0009", OLD_HOOKS)
    async with Store.open(url) as store:
        theirs, ours = [await store.read(webhooks.by_id, one) for one in ("wh1", "wh2")]
        assert theirs is not None
        assert ours is not None
        assert set(theirs.actions) == {
            "sandbox.running",
            "sandbox.lifecycle.created",
            "sandbox.killed",
            "sandbox.failed",
            "sandbox.lifecycle.killed",
        }
        assert ours.actions == ("sandbox.creating",)


async def test_a_database_of_a_newer_version_is_refused_and_stays_as_it_is(url: str) -> None:
    async with Store.open(url) as store:
        await store.write(_set_version, "9999")
    with pytest.raises(Conflict) as caught:
        async with Store.open(url):
            pass
    assert caught.value.code == "other_version"
    newer = engine.database_engine(url)
    with newer.connect() as connection:
        assert connection.scalars(sa.text("SELECT version_num FROM alembic_version")).all() == ["9999"]
    newer.dispose()


def _set_version(connection: sa.Connection, version: str) -> None:
    connection.execute(sa.text("UPDATE alembic_version SET version_num = :version"), {"version": version})


async def test_opening_again_changes_nothing(url: str) -> None:
    for _ in range(2):
        async with Store.open(url) as store:
            await store.read(rows.live)
