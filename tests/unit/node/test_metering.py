"""Samples of what sandboxes use, on a disk that does not answer."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from atoll.model import limits
from atoll.model.usage import Sample
from atoll.node import metering
from atoll.node.metering import Sampler

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_disk_that_does_not_answer_holds_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has given up is not sampled later either, when the disk is back."""
    released, begun = threading.Event(), []

    def read(_host: Any, entries: Any) -> dict[str, Sample]:
        begun.append(entries)
        released.wait()
        return {}

    monkeypatch.setattr(metering, "samples", read)
    host: Any = SimpleNamespace()
    sampler = Sampler(host)
    for _ in range(limits.SAMPLE_THREADS + 3):
        with anyio.move_on_after(0.01):
            await sampler.samples([])
    assert len(begun) == limits.SAMPLE_THREADS
    released.set()
    with anyio.fail_after(5):
        assert await sampler.samples([]) == {}
    assert len(begun) == limits.SAMPLE_THREADS + 1
    sampler.close()
