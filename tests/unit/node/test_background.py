"""Work that nobody waits for: an error of the machine in it does not end the server."""

from __future__ import annotations

import errno

import anyio
import pytest
from structlog.testing import capture_logs

from atoll.model import limits
from atoll.model.errors import Unavailable
from atoll.node import background

pytestmark = pytest.mark.anyio

NO_FILES = OSError(errno.EMFILE, "too many open files")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("trouble", [NO_FILES, Unavailable("full", detail="ENOSPC"), KeyError("a bug")])
async def test_what_is_done_once_is_told_and_over(trouble: Exception) -> None:
    async def act(word: str) -> None:
        assert word == "now"
        raise trouble

    with capture_logs() as logs:
        await background.safely(act, "now")
    assert len(logs) == 1
    assert logs[0]["detail"] == getattr(trouble, "detail", "")


async def test_a_loop_begins_anew_and_the_same_trouble_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOOP_RETRY_S", 0)
    begun = 0

    async def run() -> None:
        nonlocal begun
        begun += 1
        if begun <= 3:
            raise NO_FILES

    with capture_logs() as logs, anyio.fail_after(5):
        await background.forever(run)
    assert begun == 4
    assert len(logs) == 1


async def test_a_stop_ends_both() -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(background.safely, anyio.sleep_forever)
        tasks.start_soon(background.forever, anyio.sleep_forever)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(5):
            tasks.cancel_scope.cancel()
