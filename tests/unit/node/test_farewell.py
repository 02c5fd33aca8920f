"""A box that dies before it has an owner: nobody waits for its guest any longer."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from atoll.model.errors import GuestFailed
from atoll.node import warmimages
from atoll.node.instance import Instance

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Deaf:
    """A box whose guest takes a connection and says nothing, as one that is dead does."""

    def __init__(self) -> None:
        self.exited = asyncio.Event()
        self.called = asyncio.Event()
        self._theirs: socket.socket | None = None

    async def wait_exited(self) -> None:
        await self.exited.wait()

    async def connect_guest(self) -> socket.socket:
        ours, self._theirs = socket.socketpair()
        self.called.set()
        return ours

    async def die_when_called(self) -> None:
        await self.called.wait()
        await asyncio.sleep(0.05)
        self.exited.set()

    def close(self) -> None:
        if self._theirs is not None:
            self._theirs.close()


def instance_in(box: Any) -> Instance:
    """With no connection begun in advance."""

    def refuse(_: int) -> socket.socket:
        raise OSError

    host, entry, network = SimpleNamespace(), SimpleNamespace(token="t"), SimpleNamespace(dial_begin=refuse)
    anything: Any = (host, entry, network, box)
    return Instance(*anything)


async def test_what_is_asked_of_a_guest_ends_when_its_box_dies() -> None:
    """A box of the pool that was killed as it ran its first program; the pool made no other for an hour."""
    box = Deaf()
    instance = instance_in(box)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(box.die_when_called)
        with pytest.raises(GuestFailed) as caught:
            async with asyncio.timeout(5), instance.hung_up_if_it_dies():
                await warmimages.run_once(instance)
    box.close()
    assert caught.value.code == "guest_lost"


async def test_what_fails_otherwise_is_told_as_it_is() -> None:
    instance = instance_in(Deaf())
    with pytest.raises(KeyError):
        async with instance.hung_up_if_it_dies():
            raise KeyError
