"""One sandbox of a fake node behind the façade, and a caller who holds its token."""

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
