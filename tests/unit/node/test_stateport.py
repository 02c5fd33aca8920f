"""What goes on after an answer was given: a machine that is out of files does not end the server over it."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from atoll.model import limits
from atoll.model.resources import Resources
from atoll.node.stateport import StatePort
from atoll.wire.node import SandboxOrder

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Port(StatePort):
    """A node of which only sleep and waking are there."""

    def __init__(self, tasks: Any, snapshots: Any) -> None:
        self._tasks = tasks
        self._snapshots = snapshots
        self._introductions = cast(Any, SimpleNamespace(wait=_nothing))
        self._host = cast(Any, SimpleNamespace(images=SimpleNamespace(warm=lambda _: None)))

    def _instance(self, sandbox_id: str) -> Any:
        raise NotImplementedError(sandbox_id)

    def _take_in(self, instance: Any) -> None:
        pass

    def _admitted(self, order: SandboxOrder) -> Any:
        return anyio.CancelScope()

    async def _demolish(self, instance: Any) -> None:
        pass

    def _check_volumes(self, mounts: Any) -> None:
        pass


async def _nothing(*_: Any, **__: Any) -> None:
    pass


async def test_an_image_that_cannot_be_removed_after_a_wake_up_does_not_end_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "TIDY_AFTER_S", 0)
    tried = anyio.Event()

    async def remove(_image_id: str) -> None:
        tried.set()
        raise OSError(errno.EMFILE, "too many open files")

    snapshots = SimpleNamespace(resume=_nothing, woken=lambda _: "im1", remove=remove)
    async with anyio.create_task_group() as tasks:
        await Port(tasks, snapshots).sandbox_resume(SandboxOrder("sb1", "code", Resources()))
        with anyio.fail_after(5):
            await tried.wait()


async def test_a_disk_that_cannot_be_kept_after_a_pause_does_not_end_the_server() -> None:
    tried = anyio.Event()

    async def pause(sandbox_id: str, *, memory: bool) -> tuple[Any, str]:
        assert (sandbox_id, memory) == ("sb1", True)
        return None, "im1"

    async def disk_keep(_image_id: str, _instance: Any) -> None:
        tried.set()
        raise OSError(errno.EMFILE, "too many open files")

    async with anyio.create_task_group() as tasks:
        port = Port(tasks, SimpleNamespace(pause=pause, disk_keep=disk_keep))
        await port.sandbox_pause("sb1", memory=True)
        with anyio.fail_after(5):
            await tried.wait()


async def test_one_who_uses_an_image_for_long_does_not_hold_up_who_removes_it_and_others() -> None:
    using, removed = anyio.Event(), list[str]()

    async def remove(image_id: str) -> None:
        if image_id == "used":
            await using.wait()
        removed.append(image_id)

    async with anyio.create_task_group() as tasks:
        port = Port(tasks, SimpleNamespace(remove=remove, in_use=lambda image_id: image_id == "used"))
        with anyio.fail_after(5):
            await port.image_remove("used")
            await port.image_remove("other")
        assert removed == ["other"]
        using.set()
    assert removed == ["other", "used"]
