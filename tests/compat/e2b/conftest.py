"""A real server for E2B's clients, and the variables that `atoll env e2b` prints for it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from atoll.testing.server import Server
from tests.compat.e2b.clients import WHOLE

collect_ignore = [] if WHOLE else ["test_cli.py"]  # its packages are large, and the SDKs use the same API

Environment = dict[str, str]


@pytest.fixture(scope="package")
def headers_mode(make_data_dir: Callable[[], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """One address for everything."""
    yield from _served(Server(make_data_dir(), {}), tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="package")
def domain_mode(make_data_dir: Callable[[], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """A name for each port of each sandbox, with TLS."""
    yield from _served(Server(make_data_dir(), {"ATOLL_TLS": "true"}), tmp_path_factory.mktemp("home"), "--domain")


def _served(server: Server, home: Path, *flags: str) -> Iterator[Environment]:
    server.start()
    yield environment_of(server, home, *flags)
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
