"""A real guest as a plain process on loopback, and a link to it. It must be root, as it is in a sandbox."""

from __future__ import annotations

import asyncio
import fcntl
import os
import resource
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from atoll.node.guestlink import GuestLink
from atoll.wire import guest as wire

SOURCE = Path(__file__).parents[3] / "src"


@dataclass
class Guest:
    port: int
    token: str
    pid: int

    @property
    def link(self) -> GuestLink:
        return GuestLink(self.connect, self.token)

    async def connect(self) -> socket.socket:
        connection = socket.socket()
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self.port))
        return connection


def start_guest(token: str) -> tuple[subprocess.Popen[str], int]:
    argv = wire.boot_argv(
        [sys.executable],
        str(SOURCE),
        port=0,
        token_sha256=wire.token_hash(token),
        address="127.0.0.1",
        user="root",
    )
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline().split()[-1])


@pytest.fixture(scope="session")
def guest() -> Iterator[Guest]:
    token = secrets.token_urlsafe(16)
    process, port = start_guest(token)
    try:
        yield Guest(port, token, process.pid)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def link(guest: Guest) -> GuestLink:
    return guest.link


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def high() -> Iterator[Callable[[int], int]]:
    """Gives a descriptor another number, above the 1023 that select knows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))

    def moved(fd: int) -> int:
        number = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 2000)
        os.close(fd)
        return number

    yield moved
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
