"""E2B's control plane for sandboxes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import anyio
import pytest

from atoll.model import limits
from atoll.wire import guest
from tests.unit.api.compat.e2b.conftest import Front

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_to_ask_what_several_use_wakes_none(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as may be are looked into at once; of one that sleeps or is not there nothing is said."""
    monkeypatch.setattr(limits, "E2B_SAMPLE_S", 0.001)
    monkeypatch.setattr(limits, "E2B_SAMPLES_AT_ONCE", 2)

    def metrics(params: dict[str, Any]) -> list[guest.Message]:
        return [guest.Ok({"at": 1.0})]

    made = []
    for _ in range(4):
        made.append((await front.create(autoPause=True, autoResume={"enabled": True}))["sandboxID"])
        front.node.guests[made[-1]].scripts["metrics"] = metrics
    asleep = made[1]
    assert (await front.ask("POST", f"/sandboxes/{asleep}/pause", {}, x_api_key=front.key)).status == 204
    wanted = ",".join([*made, made[0], "sbnothing"])
    answer = await front.ask("GET", f"/sandboxes/metrics?sandbox_ids={wanted}", x_api_key=front.key)
    assert answer.status == 200, answer.body
    assert set(answer.json()["sandboxes"]) == set(made) - {asleep}
    shown = await front.ask("GET", f"/sandboxes/{asleep}", x_api_key=front.key)
    assert shown.json()["state"] == "paused"


async def test_to_connect_never_takes_time_away(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another has given it more in the moment between the look at its deadline and the write."""
    one = f"/sandboxes/{(await front.create(timeout=30))['sandboxID']}"
    set_deadline = front.control.sandbox_set_deadline

    async def late(principal: Any, reference: str, timeout_s: float, **options: Any) -> Any:
        await set_deadline(principal, reference, 900)
        return await set_deadline(principal, reference, timeout_s, **options)

    monkeypatch.setattr(front.control, "sandbox_set_deadline", late)
    before = (await front.ask("GET", one, x_api_key=front.key)).json()
    answer = await front.ask("POST", f"/v2{one}/connect", {"timeout": 60}, x_api_key=front.key)
    assert answer.status == 200, answer.body
    after = (await front.ask("GET", one, x_api_key=front.key)).json()
    gained = datetime.fromisoformat(after["endAt"]) - datetime.fromisoformat(before["endAt"])
    assert gained > timedelta(seconds=800)


@pytest.mark.parametrize(("after", "status"), [("pause", 201), ("kill", 404)])
async def test_to_connect_to_what_just_falls_asleep_wakes_it(
    front: Front, monkeypatch: pytest.MonkeyPatch, after: str, status: int
) -> None:
    one = f"/sandboxes/{(await front.create(timeout=30))['sandboxID']}"
    set_deadline = front.control.sandbox_set_deadline

    async def late(*arguments: Any, **options: Any) -> Any:
        way = ("POST", f"{one}/pause") if after == "pause" else ("DELETE", one)
        assert (await front.ask(*way, {}, x_api_key=front.key)).status == 204
        return await set_deadline(*arguments, **options)

    monkeypatch.setattr(front.control, "sandbox_set_deadline", late)
    answer = await front.ask("POST", f"/v2{one}/connect", {"timeout": 60}, x_api_key=front.key)
    assert answer.status == status, answer.body


async def test_who_connects_while_another_wakes_it_has_the_time_that_was_asked_for(front: Front) -> None:
    one = f"/sandboxes/{(await front.create())['sandboxID']}"
    await front.ask("POST", f"{one}/pause", {}, x_api_key=front.key)
    front.node.resume_s = 0.05
    async with anyio.create_task_group() as tasks:
        for timeout in (60, 900):
            tasks.start_soon(partial(front.ask, "POST", f"/v2{one}/connect", {"timeout": timeout}, x_api_key=front.key))
            await anyio.wait_all_tasks_blocked()
    shown = (await front.ask("GET", one, x_api_key=front.key)).json()
    assert datetime.fromisoformat(shown["endAt"]) - datetime.now(UTC) > timedelta(seconds=800)
