"""Signals to processes that a program started, of which the guest knows the pid alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.model import errors
from atoll.node.guestlink import GuestLink, GuestStream
from atoll.wire import guest as wire
from tests.unit.guest.test_processes import drain
from tests.waiting import wait_until

pytestmark = pytest.mark.anyio


async def pids_of(stream: GuestStream) -> list[int]:
    """Those that a program prints in its first line."""
    said = b""
    while not said.endswith(b"\n"):
        message = await stream.receive()
        said += message.payload if isinstance(message, wire.Data) else b""
    return [int(word) for word in said.split()]


async def test_a_signal_to_the_group_of_one_that_a_program_started(link: GuestLink) -> None:
    async with link.stream("process.start", {"argv": ["sh", "-c", "sleep 600 & echo $!; wait"]}) as stream:
        [child] = await pids_of(stream)
        await link.call("process.signal", {"pid": child, "signal": "KILL", "group": True})
        assert (await drain(stream))[2]["signal"] == 9


@pytest.mark.parametrize("name", ["KILL", "TERM"])
async def test_a_signal_to_the_tree_of_one_that_a_program_started(link: GuestLink, name: str) -> None:
    inner = "sleep 600 & echo $$ $!; wait"
    params = {"argv": ["sh", "-c", 'sh -c "$INNER" & wait; exit 5'], "env": {"INNER": inner}}
    async with link.stream("process.start", params) as stream:
        shell, sleeper = await pids_of(stream)
        await link.call("process.signal", {"pid": shell, "signal": name, "tree": True})
        wait_until(lambda: not Path(f"/proc/{sleeper}").exists(), 5.0)
        assert (await drain(stream))[2]["code"] == 5
    with pytest.raises(errors.NotFound):
        await link.call("process.signal", {"pid": shell, "signal": name, "tree": True})
