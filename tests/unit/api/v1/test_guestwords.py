"""Lists that a sandbox makes up: whatever is asked for, the server holds no more of it than the bound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from atoll.wire import guest

pytestmark = pytest.mark.anyio

LISTS = [
    ("file.list", "GET", "~/files?path=.", None),
    ("file.find", "GET", "~/files/find?path=.", None),
    ("file.search", "POST", "~/files/search", {"path": ".", "pattern": "x"}),
    ("file.replace", "POST", "~/files/replace", {"path": ".", "pattern": "x", "replacement": "y"}),
    ("process.list", "GET", "~/processes", None),
    ("metrics.processes", "GET", "~/metrics/processes", None),
]
MATCH = {"line": 1, "column": 1, "length": 1, "text": "x", "cut": False}
USE = {"pid": 1, "parent": 1, "command": "x", "cpu_s": 0.0, "memory_bytes": 0, "threads": 1, "state": "S", "own": False}


@pytest.mark.parametrize(("op", "method", "target", "body"), LISTS)
async def test_a_list_is_bounded_in_bytes(
    inside: Any, monkeypatch: pytest.MonkeyPatch, op: str, method: str, target: str, body: Any
) -> None:
    """Its things are few: only what they weigh can stop it. Positive control: as many of them as there is room for."""
    monkeypatch.setattr("atoll.model.limits.GUEST_LIST_BYTES_MAX", 20_000)
    count = 4

    def script(_: dict[str, Any]) -> Iterator[guest.Message]:
        for number in range(count):
            thing = {**inside.guest.describe("/home/user"), **MATCH, **USE, "path": "x" * 4000, "count": number}
            thing |= {"id": "p1", "tag": "", "argv": ["x" * 100], "cwd": "/", "started_at": 1.0, "exit": None}
            yield guest.Event({"entries": [thing]})
        yield guest.End({"count": count})

    inside.guest.scripts[op] = script
    answer = await inside.ask(method, target, body)
    assert (answer.status, len(answer.json()["items"])) == (200, 4)
    count = 1000
    answer = await inside.ask(method, target, body)
    assert (answer.status, answer.json()["code"]) == (413, "list_too_large")
    assert "a part of it" in answer.json()["hint"]
