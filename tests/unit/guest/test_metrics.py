from __future__ import annotations

import os

import pytest

from atoll.guest import metrics, tree
from atoll.node.guestlink import GuestLink
from tests.listed import listed


def test_tables_of_proc() -> None:
    assert metrics.parse_network("h\nh2\n lo: 5 0 0 0 0 0 0 0 5 0\n eth0: 7 0 0 0 0 0 0 0 9 0\nbad: x\n") == (7, 9)
    assert metrics.parse_cpu("cpu  100 0 50 1000 20 0 0 0 0 0\ncpu0 1\n") == 150 / tree.TICKS_PER_S
    assert metrics.parse_cpu("") == 0.0


@pytest.mark.anyio
async def test_what_is_used_now(link: GuestLink) -> None:
    now = await link.call("metrics")
    assert 0 < now["memory_available_bytes"] <= now["memory_total_bytes"]
    assert now["processes"] >= 2
    entries, end = await listed(link, "metrics.processes")
    assert end["count"] == len(entries)
    assert os.getpid() in {entry["pid"] for entry in entries}
    assert any(entry["own"] for entry in entries)
