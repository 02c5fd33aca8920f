"""The façade on a fake node: as a caller with a key sees it, and one sandbox, as a caller with its token does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from atoll.api.app import create_app
from atoll.api.compat.e2b import facade
from atoll.control.clock import SystemClock
from atoll.control.service import Control
from atoll.control.store.engine import Store, sqlite_url
from atoll.telemetry import Metrics
from atoll.testing.asgi import Answer, Caller
from atoll.testing.fakeguest import FakeGuest
from atoll.testing.nodes import FakeNode
from atoll.wire import e2bkey


@dataclass
class Front:
    """A server without a port, and the key that made it."""

    control: Control
    caller: Caller
    key: str
    node: FakeNode

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.caller.ask(method, path, body, headers={"host": "127.0.0.1:7070", **names})

    async def create(self, **options: Any) -> dict[str, Any]:
        answer = await self.ask("POST", "/v2/sandboxes", {"templateID": "base", **options}, x_api_key=self.key)
        assert answer.status == 201, answer.body
        made: dict[str, Any] = answer.json()
        return made


@dataclass
class Inside:
    """The sandbox's agent and interpreter, by the headers that name it."""

    caller: Caller
    names: dict[str, str]
    guest: FakeGuest

    async def ask(self, method: str, target: str, body: Any = None, **headers: str) -> Answer:
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.caller.ask(method, target, body, headers={**self.names, **more})


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    async with FakeNode.open() as node, Store.open(sqlite_url(tmp_path / "db")) as store:
        async with Control.open(store, node, SystemClock(), Metrics(), tmp_path / "key") as control:
            caller = Caller(create_app(control, facades=[facade]))
            key = e2bkey.spelled((tmp_path / "key").read_text().strip())
            host = {"host": "127.0.0.1:7070"}
            asked = {"templateID": "base"}
            made = (await caller.ask("POST", "/v2/sandboxes", asked, headers={**host, "x-api-key": key})).json()
            names = {**host, "e2b-sandbox-id": made["sandboxID"], "x-access-token": made["envdAccessToken"]}
            yield Inside(caller, names, node.guests[made["sandboxID"]])


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Front]:
    async with FakeNode.open() as node, Store.open(sqlite_url(tmp_path / "db")) as store:
        async with Control.open(store, node, SystemClock(), Metrics(), tmp_path / "key") as control:
            app = create_app(control, facades=[facade])
            yield Front(control, Caller(app), e2bkey.spelled((tmp_path / "key").read_text().strip()), node)
