"""Every operation of the API, tried without a key, with a wrong one, and with another owner's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from atoll.api.app import create_app, endpoints
from atoll.control.authz import DEFAULT_OWNER
from atoll.control.clock import SystemClock
from atoll.control.service import Control
from atoll.control.store.engine import Store, sqlite_url
from atoll.telemetry import Metrics
from atoll.testing.asgi import Caller
from atoll.testing.nodes import FakeNode

pytestmark = pytest.mark.anyio

OPEN = {"/health", "/metrics", "/openapi.json"}
OPERATIONS = [(endpoint.method, endpoint.path) for endpoint in endpoints()]
NOT_OF_ONE_SANDBOX = {"/v1/sandboxes", "/v1/templates", "/v1/node"}
BODIES: dict[str, Any] = {
    "/deadline": {"timeout_s": 60},
    "/processes": {"cmd": "true"},
    "/signal": {"signal": "KILL"},
    "/move": {"source": "a", "target": "b"},
    "/directories": {"path": "a"},
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[Control]:
    async with FakeNode.open() as node, Store.open(sqlite_url(tmp_path / "db")) as store:
        async with Control.open(store, node, SystemClock(), Metrics(), tmp_path / "key") as control:
            yield control


def test_only_these_need_no_key() -> None:
    assert {endpoint.path for endpoint in endpoints() if endpoint.public} == OPEN


@pytest.mark.parametrize(("method", "path"), [pair for pair in OPERATIONS if pair[1] not in OPEN])
@pytest.mark.parametrize("key", ["", "atoll_" + "A" * 43, "x"])
async def test_without_a_valid_key_nothing_is_told(control: Control, method: str, path: str, key: str) -> None:
    answer = await Caller(create_app(control), key).ask(method, path.format(sandbox="x", process="y"), {})
    assert (answer.status, answer.json()["code"]) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("method", "path"), [pair for pair in OPERATIONS if pair[1] not in OPEN and pair[1] not in NOT_OF_ONE_SANDBOX]
)
async def test_what_is_anothers_answers_as_what_does_not_exist(control: Control, method: str, path: str) -> None:
    app = create_app(control)
    mine = Caller(app, await control.key_create(DEFAULT_OWNER, "mine"))
    other = Caller(app, await control.key_create("other", "theirs"))
    sandbox = (await mine.ask("POST", "/v1/sandboxes", {})).json()["sandbox"]["id"]
    missing = sandbox[:-6] + "000000"
    body: Any = next((value for ending, value in BODIES.items() if path.endswith(ending)), {})
    query = "?path=a" if "/files" in path and not path.endswith("/move") else ""
    answers = [
        await other.ask(method, path.format(sandbox=one, process="p1") + query, body) for one in (sandbox, missing)
    ]
    told = []
    for answer, one in zip(answers, (sandbox, missing), strict=True):
        problem = answer.json()
        problem.pop("request_id")
        told.append((answer.status, str(problem).replace(one, "ID")))
    assert told[0] == told[1]
    assert answers[0].status == 404
    assert (await mine.ask("GET", f"/v1/sandboxes/{sandbox}")).json()["state"] == "running"


async def test_both_headers_carry_a_key(control: Control) -> None:
    key = await control.key_create(DEFAULT_OWNER, "mine")
    app = create_app(control)
    assert (await Caller(app).ask("GET", "/v1/node", headers={"x-api-key": key})).status == 200
    assert (await Caller(app).ask("GET", "/v1/node", headers={"authorization": f"bearer {key}"})).status == 200
    assert (await Caller(app).ask("GET", "/v1/node", headers={"authorization": f"Basic {key}"})).status == 401
