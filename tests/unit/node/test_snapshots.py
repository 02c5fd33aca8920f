"""An image that somebody uses is not removed before they let go of it, however they use it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from atoll.node.snapshots import Snapshots

pytestmark = pytest.mark.anyio


async def test_a_removal_waits_for_everybody_who_uses_the_image() -> None:
    removed: list[str] = []
    host: Any = SimpleNamespace(images=SimpleNamespace(remove=removed.append))
    snapshots = Snapshots(host, cast(Any, None), {}, cast(Any, None))
    async with anyio.create_task_group() as tasks:
        with snapshots.using("one"):
            with snapshots.using("one"):
                tasks.start_soon(snapshots.remove, "one")
                await snapshots.remove("other")
                await anyio.wait_all_tasks_blocked()
            await anyio.wait_all_tasks_blocked()
            assert removed == ["other"]
    assert removed == ["other", "one"]
