"""A box whose state cannot be put on record."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from atoll.model.errors import Unavailable
from atoll.node.runtime import sentrycall
from atoll.node.runtime.runsc import RunscBox
from atoll.node.runtime.standing import Standing

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("step", ["moving", "still"])
async def test_a_pause_without_room_for_its_record_says_that_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(_: Standing) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def done(*_: object) -> None:
        return None

    monkeypatch.setattr(Standing, step, full)
    monkeypatch.setattr(sentrycall, "call", done)
    runsc = SimpleNamespace(control_socket=lambda _: tmp_path / "socket")
    box = RunscBox(cast("Any", runsc), cast("Any", SimpleNamespace(box_id="bx", folder=tmp_path)), cast("Any", None))
    with pytest.raises(Unavailable) as caught:
        await box.pause()
    assert caught.value.code == "disk_pool_full"
