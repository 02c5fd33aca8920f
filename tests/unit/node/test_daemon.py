"""What a node does in the background, on a machine that is out of files."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from atoll.model.lifecycle import EndReason
from atoll.model.resources import Resources
from atoll.node.daemon import Node

pytestmark = pytest.mark.anyio

NO_FILES = OSError(errno.EMFILE, "too many open files")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Broken:
    """A sandbox of which nothing can be done any more."""

    ending = False
    alive = True
    moved_in = False

    def __init__(self) -> None:
        self.entry = SimpleNamespace(
            sandbox_id="sb1", box_id="bx1", template="code", resources=Resources(), env={}, hostname="sandbox"
        )
        self.tried = anyio.Event()

    async def introduce(self, _timeout_s: float) -> None:
        raise NO_FILES

    async def demolish(self) -> None:
        self.tried.set()
        raise NO_FILES

    async def strike(self) -> None:
        self.ending = True

    async def wait_death(self) -> tuple[EndReason, str]:
        raise NO_FILES


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    host = SimpleNamespace(names=None, egress=SimpleNamespace(forget=lambda _: None))
    node = Node(cast(Any, host), 1.0, 0, cast(Any, None))
    async with anyio.create_task_group() as tasks:
        node._tasks = tasks
        yield node


async def test_one_that_cannot_be_told_whose_it_is_nor_replaced_has_died(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any, **__: Any) -> Any:
        raise NO_FILES

    monkeypatch.setattr(node, "_make_new", fail)
    broken = Broken()
    node._instances["sb1"] = cast(Any, broken)
    node._introduce_later(cast(Any, broken))
    with anyio.fail_after(5):
        await node._introductions.wait("sb1")
        died = await node.wait_death()
        await broken.tried.wait()
    assert (died.sandbox_id, died.reason) == ("sb1", EndReason.GUEST_UNRESPONSIVE)


async def test_one_whose_death_cannot_be_looked_into_has_died(node: Node) -> None:
    broken = Broken()
    node._take_in(cast(Any, broken))
    with anyio.fail_after(5):
        assert (await node.wait_death()).reason is EndReason.RUNTIME_DIED
        await broken.tried.wait()


async def test_what_cannot_be_taken_down_after_a_kill_is_left_to_the_next_start(node: Node) -> None:
    broken = Broken()
    node._instances["sb1"] = cast(Any, broken)
    await node.sandbox_destroy("sb1")
    with anyio.fail_after(5):
        await broken.tried.wait()
    assert node.sandbox_ids() == frozenset()
