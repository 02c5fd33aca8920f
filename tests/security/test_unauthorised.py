"""Every operation of the API, tried without a key, with a wrong one, and with another owner's."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
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

OPEN = {"/health", "/metrics", "/openapi.json", "/v1/signed/files"}
OPERATIONS = [(endpoint.method, endpoint.path) for endpoint in endpoints()]
NOT_OF_ONE_SANDBOX = {path for _, path in OPERATIONS if "{sandbox}" not in path}
BODIES: dict[str, Any] = {
    "/rollback": {"snapshot": "x"},
    "/restore": {"snapshot": "x", "path": "/a"},
    "/deadline": {"timeout_s": 60},
    "/policy/test": {"url": "https://a.test"},
    "/asks/{ask}": {"answer": "once"},
    "{sandbox}/secrets": {"secrets": []},
    "/processes": {"cmd": "true"},
    "/executions": {"code": "1"},
    "/signal": {"signal": "KILL"},
    "/move": {"source": "a", "target": "b"},
    "/copy": {"source": "a", "target": "b"},
    "/chmod": {"path": "a", "mode": "644"},
    "/chown": {"path": "a", "owner": "root"},
    "/symlink": {"path": "a", "target": "b"},
    "/touch": {"path": "a"},
    "/search": {"path": "a", "pattern": "b"},
    "/replace": {"path": "a", "pattern": "b", "replacement": "c"},
    "/attributes": {"path": "a", "name": "user.a", "value": ""},
    "/urls": {"path": "a", "method": "GET"},
    "/directories": {"path": "a"},
    "/shells/{process}/run": {"command": "true"},
    "/git/clone": {"url": "https://example.org/a.git"},
    "/git/commit": {"path": "a", "message": "m"},
    "/git/checkout": {"path": "a", "target": "b"},
    "/git/branches": {"path": "a", "name": "b"},
    "/git/add": {"path": "a"},
    "/git/pull": {"path": "a"},
    "/git/push": {"path": "a"},
}


def filled(path: str, sandbox: str) -> str:
    """The path with a sandbox; what else it names need not exist."""
    return re.sub(r"\{\w+\}", "1", path.replace("{sandbox}", sandbox))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[Control]:
    async with FakeNode.open() as node, Store.open(sqlite_url(tmp_path / "db")) as store:
        async with Control.open(store, node, SystemClock(), Metrics(), tmp_path / "key") as control:
            yield control


def placed(path: str, sandbox: str) -> str:
    """The path with all its parameters; whatever is neither a sandbox nor a port has a name of its own."""
    values = {"sandbox": sandbox, "port": "80"}
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], "p1"), path)


def test_only_these_need_no_key() -> None:
    assert {endpoint.path for endpoint in endpoints() if endpoint.public} == OPEN


@pytest.mark.parametrize(("method", "path"), [pair for pair in OPERATIONS if pair[1] not in OPEN])
@pytest.mark.parametrize("key", ["", "atoll_" + "A" * 43, "x"])
async def test_without_a_valid_key_nothing_is_told(control: Control, method: str, path: str, key: str) -> None:
    answer = await Caller(create_app(control), key).ask(method, placed(path, "x"), {})
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
    query = "?path=a" if method == "GET" and "/git/" in path else _file_query(method, path)
    answers = [await other.ask(method, placed(path, one) + query, body) for one in (sandbox, missing)]
    told = []
    for answer, one in zip(answers, (sandbox, missing), strict=True):
        problem = answer.json()
        problem.pop("request_id")
        told.append((answer.status, str(problem).replace(one, "ID")))
    assert told[0] == told[1]
    assert answers[0].status == 404
    assert (await mine.ask("GET", f"/v1/sandboxes/{sandbox}")).json()["state"] == "running"


def _file_query(method: str, path: str) -> str:
    """What an operation on files must be told in its query."""
    kind = next(one.query for one in endpoints() if (one.method, one.path) == (method, path))
    needed = [item.name for item in msgspec.structs.fields(kind) if item.required and item.name in ("path", "name")]
    return "?" + "&".join(f"{name}=a" for name in needed) if "/files" in path and needed else ""


async def test_both_headers_carry_a_key(control: Control) -> None:
    key = await control.key_create(DEFAULT_OWNER, "mine")
    app = create_app(control)
    assert (await Caller(app).ask("GET", "/v1/node", headers={"x-api-key": key})).status == 200
    assert (await Caller(app).ask("GET", "/v1/node", headers={"authorization": f"bearer {key}"})).status == 200
    assert (await Caller(app).ask("GET", "/v1/node", headers={"authorization": f"Basic {key}"})).status == 401
