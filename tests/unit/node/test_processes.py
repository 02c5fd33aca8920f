"""A process is held by pid and start time, so that a reused pid is not mistaken for it."""

from __future__ import annotations

import asyncio
import signal
import subprocess

from atoll.node import processes
from atoll.node.processes import ProcessHandle


def test_a_handle_tells_alive_from_dead_and_ends_a_waiter() -> None:
    child = subprocess.Popen(["sleep", "100"])
    handle = ProcessHandle.open(child.pid)
    assert handle is not None
    assert handle.alive()
    assert ProcessHandle.open(child.pid, handle.started + 1) is None

    async def end_and_wait() -> None:
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            tasks.create_task(handle.wait_exited())
            tasks.create_task(handle.wait_exited())
            await asyncio.sleep(0.01)
            handle.signal(signal.SIGKILL)

    asyncio.run(end_and_wait())
    assert not handle.alive()
    assert processes.started(child.pid) is None  # a zombie is no process
    child.wait()
    handle.signal(signal.SIGKILL)
    handle.close()
    handle.close()
    assert ProcessHandle.open(child.pid) is None
