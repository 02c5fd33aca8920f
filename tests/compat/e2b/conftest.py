"""A real server for E2B's clients, and the variables that `atoll env e2b` prints for it."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from atoll.testing.server import Server
from tests.compat.e2b import proxy
from tests.compat.e2b.clients import WHOLE

# The packages of the command line are large, and the SDKs use the same API. What is called shows only in all programs.
collect_ignore = [] if WHOLE else ["test_cli.py", "test_driven.py", "test_unresponsive.py"]

Environment = dict[str, str]


@pytest.fixture(scope="package")
def forward_proxy() -> Iterator[Environment]:
    with proxy.proxy() as variables:
        yield variables


@pytest.fixture(scope="package")
def headers_mode(
    make_data_dir: Callable[[], Path], tmp_path_factory: pytest.TempPathFactory, forward_proxy: Environment
) -> Iterator[Environment]:
    """One address for everything."""
    with _served(Server(make_data_dir(), {}), tmp_path_factory.mktemp("home")) as environment:
        yield environment | forward_proxy


@pytest.fixture(scope="package")
def domain_mode(
    make_data_dir: Callable[[], Path], tmp_path_factory: pytest.TempPathFactory, forward_proxy: Environment
) -> Iterator[Environment]:
    """A name for each port of each sandbox, with TLS."""
    server = Server(make_data_dir(), {"ATOLL_TLS": "true"})
    with _served(server, tmp_path_factory.mktemp("home"), "--domain") as environment:
        yield environment | forward_proxy


@pytest.fixture(scope="package")
def errors_mode(make_data_dir: Callable[[], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """One address for everything, and a sandbox whose disk is soon full: E2B's clients cannot ask for one."""
    server = Server(make_data_dir(), {})
    with _served(server, tmp_path_factory.mktemp("home")) as environment:
        small = server.create("base", disk="64MiB", timeout_s=3600)
        yield environment | {"SMALL_DISK": small.id}


@contextlib.contextmanager
def _served(server: Server, home: Path, *flags: str) -> Iterator[Environment]:
    server.start()
    try:
        yield environment_of(server, home, *flags)
    finally:
        server.close()


def environment_of(server: Server, home: Path, *flags: str) -> Environment:
    """What a user's shell has after `eval "$(atoll env e2b)"`."""
    plain = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-m", "atoll", "env", "e2b", *flags],
        env={**plain, "ATOLL_DATA": str(server.data), "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    environment = {**plain, "HOME": str(home)}
    for line in done.stdout.splitlines():
        word, rest = line.split(" ", 1)
        if word == "export":
            name, _, value = shlex.split(rest)[0].partition("=")
            environment[name] = value
    return environment
