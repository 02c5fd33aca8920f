"""Pause, resume, fork and snapshots in E2B's words."""

from __future__ import annotations

from functools import partial

import anyio
import pytest

from tests.unit.api.compat.e2b.conftest import Front

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_sandbox_that_wakes_up_is_paused_when_it_has(front: Front) -> None:
    one = f"/sandboxes/{(await front.create())['sandboxID']}"
    pause = partial(front.ask, "POST", f"{one}/pause", {}, x_api_key=front.key)
    assert (await pause()).status == 204
    assert (await pause()).status == 409
    front.node.resume_s = 0.1
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(front.ask, "POST", f"/v2{one}/connect", {}, x_api_key=front.key))
        await anyio.wait_all_tasks_blocked()
        answer = await pause()
        assert answer.status == 204, answer.body
    assert (await front.ask("GET", one, x_api_key=front.key)).json()["state"] == "paused"
    assert len(front.node.resumed) == 1


async def test_snapshots_of_what_is_not_there_are_none(front: Front) -> None:
    """E2B's API has no 404 there."""
    made = await front.create()
    await front.ask("POST", f"/sandboxes/{made['sandboxID']}/snapshots", {"name": "mine"}, x_api_key=front.key)
    for query, count in (("", 1), (f"?sandboxID={made['sandboxID']}", 1), ("?sandboxID=sbnothing", 0)):
        for name in ("", "name=mine"):
            both = f"{query}{'&' if query else '?'}{name}" if name else query
            answer = await front.ask("GET", f"/snapshots{both}", x_api_key=front.key)
            assert (answer.status, len(answer.json())) == (200, count), (both, answer.body)
