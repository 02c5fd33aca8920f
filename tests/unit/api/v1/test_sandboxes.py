"""Sandboxes over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.anyio


async def test_from_create_to_kill(edge: Any) -> None:
    answer = await edge.ask("POST", "/v1/sandboxes", {"name": "mine", "metadata": {"run": "7"}, "timeout_s": 60})
    assert answer.status == 201
    made = answer.json()["sandbox"]
    assert made["state"] == "running"
    assert "make" in answer.json()["steps_ms"]
    assert (await edge.ask("GET", "/v1/sandboxes/mine")).json()["id"] == made["id"]
    moved = (await edge.ask("PUT", "/v1/sandboxes/mine/deadline", {"timeout_s": 600})).json()
    assert moved["deadline_at"] > made["deadline_at"]
    killed = await edge.ask("DELETE", "/v1/sandboxes/mine")
    assert (killed.status, killed.json()["state"], killed.json()["end_reason"]) == (200, "killed", "killed_by_user")
    again = await edge.ask("DELETE", f"/v1/sandboxes/{made['id']}")
    assert (again.status, again.json()) == (200, killed.json())
    assert (await edge.ask("GET", "/v1/sandboxes/mine")).status == 404


async def test_lists_are_filtered_and_paged(edge: Any) -> None:
    for number in range(5):
        await edge.ask("POST", "/v1/sandboxes", {"metadata": {"n": str(number % 2), "a=b": "c=d"}})
    page = (await edge.ask("GET", "/v1/sandboxes?metadata=n=0&state=running&state=killed&limit=2")).json()
    assert len(page["items"]) == 2
    rest = (await edge.ask("GET", f"/v1/sandboxes?metadata=n=0&limit=2&cursor={page['next']}")).json()
    assert (len(rest["items"]), rest["next"]) == (1, None)
    empty = (await edge.ask("GET", "/v1/sandboxes?metadata=n=9")).json()
    assert empty == {"items": [], "next": None, "total": None}
