"""Watches over HTTP, and guests that lie in them, in archives and in searches."""

from __future__ import annotations

import json
from typing import Any

import pytest

from atoll.wire import framing, guest

pytestmark = pytest.mark.anyio

WATCHING = guest.Event({"type": "watching", "path": "/w", "folders": 1})


async def test_changes_come_as_lines(inside: Any) -> None:
    created = guest.Event({"type": "created", "path": "/w/\udcff", "directory": False})
    overflow = guest.Event({"type": "overflow", "path": "/w"})
    inside.guest.scripts["file.watch"] = lambda _: [WATCHING, created, overflow, guest.End({"reason": "removed"})]
    answer = await inside.ask("GET", "~/files/watch?path=/w&recursive=true")
    assert [json.loads(line) for line in answer.body.splitlines()] == [
        {"type": "watching", "path": "/w", "directories": 1},
        {"type": "changed", "change": "created", "path": "/w/\udcff", "directory": False, "cookie": None},
        {"type": "overflow", "path": "/w"},
        {"type": "ended", "reason": "removed"},
    ]


@pytest.mark.parametrize(
    ("op", "target", "body", "said"),
    [
        ("file.watch", "GET ~/files/watch?path=/w", None, [guest.Event({"type": "created", "path": "/w/a"})]),
        ("file.watch", "GET ~/files/watch?path=/w", None, [guest.Event({"type": "watching", "path": 7})]),
        ("file.watch", "GET ~/files/watch?path=/w", None, [guest.Data(framing.OUTPUT, b"x")]),
        ("file.pack", "GET ~/files/archive?path=/w", None, [guest.Data(framing.OUTPUT, b"x")]),
        ("file.pack", "GET ~/files/archive?path=/w", None, [guest.Event({}), guest.End({})]),
        ("file.search", "POST ~/files/search", {"path": "/", "pattern": "x"}, [guest.Event({"entries": [{}]})]),
        ("file.search", "POST ~/files/search", {"path": "/", "pattern": "x"}, [guest.Event({"entries": 7})]),
        ("file.find", "GET ~/files/find?path=/", None, [guest.Event({"entries": []})]),
        ("file.xattr", "GET ~/files/attributes?path=/", None, [guest.Ok({"attributes": {"a": "no base64!"}})]),
        ("file.copy", "POST ~/files/copy", {"source": "a", "target": "b"}, [guest.Ok({"path": "b"})]),
    ],
)
async def test_a_guest_that_lies_is_a_502(inside: Any, op: str, target: str, body: Any, said: list[Any]) -> None:
    inside.guest.scripts[op] = lambda _: said
    method, _, path = target.partition(" ")
    answer = await inside.ask(method, path, body)
    assert (answer.status, answer.json()["code"]) == (502, "guest_failed")


@pytest.mark.parametrize(
    ("target", "body", "code"),
    [
        ("POST ~/files/chmod", {"path": "a", "mode": "999"}, "invalid_query"),
        ("POST ~/files/chmod", {"path": "a", "mode": "-1"}, "invalid_query"),
        ("POST ~/files/chown", {"path": "a"}, "invalid_body"),
        ("POST ~/files/touch", {"path": "a", "modified_at": "2026-01-01T00:00:00"}, "invalid_body"),
        ("POST ~/files/urls", {"path": "a", "method": "DELETE"}, "invalid_method"),
        ("POST ~/files/urls", {"path": "a\0", "method": "GET"}, "invalid_argument"),
        ("GET ~/files/archive?path=a&format=rar", None, "invalid_query"),
    ],
)
async def test_bad_requests(inside: Any, target: str, body: Any, code: str) -> None:
    method, _, path = target.partition(" ")
    answer = await inside.ask(method, path, body)
    assert (answer.status, answer.json()["code"]) == (400, code)
