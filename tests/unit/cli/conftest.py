"""The CLI run as a program, against a stand-in server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

FAKE_SERVER = Path(__file__).resolve().parent.parent / "client" / "fake_server.py"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    with subprocess.Popen([sys.executable, str(FAKE_SERVER)], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()


@pytest.fixture
def environment(server_url: str) -> dict[str, str]:
    return {**os.environ, "ATOLL_URL": server_url, "ATOLL_API_KEY": "atoll_test"}


@pytest.fixture
def atoll(environment: dict[str, str]) -> Run:
    def run(*arguments: str, stdin: str | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "from atoll.cli.main import main; main()", *arguments],
            env={**environment, **variables},
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run
