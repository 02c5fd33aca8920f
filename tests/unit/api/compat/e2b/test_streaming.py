"""Streams that say nothing for long: their callers hear that they live, as often as they wish."""

from __future__ import annotations

import json
from typing import Any

import pytest

from atoll.api.compat.e2b import connect
from atoll.api.compat.e2b.connect import Envelopes
from atoll.model import limits
from atoll.wire import guest
from tests.unit.api.compat.e2b.conftest import Inside

pytestmark = pytest.mark.anyio
SILENCE_S = 0.1


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def told(inside: Inside, path: str, message: dict[str, Any], **headers: str) -> list[dict[str, Any]]:
    """What a stream says, without its end, and each sign of life once however many there were."""
    headers = {"content_type": connect.STREAM, **headers}
    answer = await inside.ask("POST", path, connect.envelope(message), **headers)
    assert answer.body.endswith(connect.end()), answer.body
    events: list[dict[str, Any]] = []
    for event in map(json.loads, Envelopes().feed(answer.body)):
        if event not in events:
            events.append(event)
    return events


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "E2B_KEEPALIVE_S", 0.01)
    monkeypatch.setattr(limits, "E2B_INTERPRETER_KEEPALIVE_S", 0.01)


async def test_of_a_command(inside: Inside) -> None:
    start = {"process": {"cmd": "sleep", "args": [str(SILENCE_S)]}}
    begun, sign, ended = await told(inside, "/process.Process/Start", start)
    assert ("start" in begun["event"], sign, "end" in ended["event"]) == (True, {"event": {"keepalive": {}}}, True)


async def test_of_a_command_that_is_followed(inside: Inside) -> None:
    process = inside.guest.start({"argv": ["sleep", "1"]})  # so that it is followed before it ends
    _, sign, _ = await told(inside, "/process.Process/Connect", {"process": {"pid": process.pid}})
    assert sign == {"event": {"keepalive": {}}}


@pytest.mark.parametrize(("interval", "count"), [("50", 2), ("0", 3), ("-1", 3), ("soon", 3), ("100000", 3)])
async def test_as_often_as_the_caller_wishes(inside: Inside, interval: str, count: int) -> None:
    """What is no interval is as if nothing were said."""
    start = {"process": {"cmd": "sleep", "args": [str(SILENCE_S)]}}
    assert len(await told(inside, "/process.Process/Start", start, keepalive_ping_interval=interval)) == count


async def test_of_a_folder_that_is_watched(inside: Inside) -> None:
    def watch(params: dict[str, Any]) -> list[guest.Message | float]:
        change = guest.Event({"type": "created", "path": "/w/a", "directory": False})
        return [guest.Event({"type": "watching", "path": "/w"}), SILENCE_S, change, guest.End({})]

    inside.guest.scripts["file.watch"] = watch
    assert await told(inside, "/filesystem.Filesystem/WatchDir", {"path": "/w"}) == [
        {"start": {}},
        {"keepalive": {}},
        {"filesystem": {"name": "a", "type": "EVENT_TYPE_CREATE"}},
    ]


async def test_of_code(inside: Inside) -> None:
    """The head of the answer goes at once, too."""
    ended = {"status": "ok", "exit_code": 0, "duration_s": 0.1, "truncated": False, "count": 3}

    def run(params: dict[str, Any]) -> list[guest.Message | float]:
        begun = guest.Event({"type": "started", "id": "e1", "context": "python"})
        return [begun, SILENCE_S, guest.End(ended)]

    inside.guest.scripts["contexts.run"] = run
    answer = await inside.ask("POST", "/execute", {"code": "1"}, e2b_sandbox_port="49999")
    types = [line["type"] for line in answer.lines()]
    assert types[0] == "keepalive"
    assert [kind for kind in types if kind != "keepalive"] == ["number_of_executions", "end_of_execution"]
