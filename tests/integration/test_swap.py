"""Swap that set-up offers, on the real kernel: made, seen by doctor, taken away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll.model.errors import Unavailable
from atoll.node.install import swap

pytestmark = pytest.mark.real

SIZE_BYTES = 64 * 1024**2


@pytest.fixture
def data(layout: object) -> Iterator[Path]:
    """A data directory beside the server's own, on the same filesystem as its pool image."""
    data = Path("/var/lib/atoll-swap-test")
    data.mkdir(mode=0o700, exist_ok=True)
    yield data
    swap.remove(data, print)
    data.rmdir()


def finding(data: Path) -> dict[str, str]:
    environment = {**os.environ, "ATOLL_DATA": str(data)}
    argv = [sys.executable, "-m", "atoll", "doctor", "--outside", "--json"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return next(one for one in json.loads(done.stdout)["findings"] if one["name"] == "swap")


@pytest.mark.parametrize("kind", [swap.FILE, swap.ZRAM])
def test_it_is_made_seen_and_taken_away(data: Path, kind: str) -> None:
    """Where this host cannot have it, it says why and leaves nothing."""
    before = swap.active_areas()
    if not _possible(data, kind):
        assert list(data.iterdir()) == []
        return
    swap.ensure(data, kind, SIZE_BYTES, print)
    swap.ensure(data, kind, SIZE_BYTES, print)
    assert len(swap.active_areas()) == len(before) + 1
    seen = finding(data)
    assert seen["status"] == "ok"
    assert "made by set-up" in seen["detail"]
    swap.remove(data, print)
    assert swap.active_areas() == before
    assert list(data.iterdir()) == []
    if not before:
        seen = finding(data)
        assert seen["status"] == "warn"
        assert "freezes" in seen["detail"]


def _possible(data: Path, kind: str) -> bool:
    try:
        swap.check_possible(data, kind, SIZE_BYTES)
    except Unavailable:
        return False
    return True
