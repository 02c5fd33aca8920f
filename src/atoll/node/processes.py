"""Processes of the host, held so that a reused pid is never mistaken for the one that was meant."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
from pathlib import Path


def started(pid: int) -> int | None:
    """When a process began, in clock ticks since boot; None if there is none, or only its remains (a zombie)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may contain anything, so count from its end.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


class ProcessHandle:
    """A process that is not our child, held by a pidfd."""

    def __init__(self, pid: int, started_ticks: int, pidfd: int) -> None:
        self.pid = pid
        self.started = started_ticks
        self._pidfd = pidfd

    @classmethod
    def open(cls, pid: int, started_ticks: int | None = None) -> ProcessHandle | None:
        """Hold a process; None if it has ended, or is another one than that which began at `started_ticks`."""
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return None
        # Read after the pidfd is open: from here on the pid cannot change its meaning unnoticed.
        found = started(pid)
        if found is None or (started_ticks is not None and found != started_ticks):
            os.close(pidfd)
            return None
        return cls(pid, found, pidfd)

    def alive(self) -> bool:
        if self._pidfd < 0:
            return False
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return not poll.poll(0)

    def signal(self, number: signal.Signals) -> None:
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    async def wait_exited(self) -> None:
        """Returns when the process has ended. Several tasks may wait."""
        if not self.alive():
            return
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        # A copy of the descriptor for each waiter: the loop knows one reader per descriptor.
        pidfd = os.dup(self._pidfd)
        loop.add_reader(pidfd, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)

    def close(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
