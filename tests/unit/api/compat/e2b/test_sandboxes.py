"""E2B's control plane for sandboxes."""

from __future__ import annotations

from typing import Any

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
