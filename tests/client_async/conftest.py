"""A stand-in server for the tests of the SDK, run as a program of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FAKE_SERVER = Path(__file__).resolve().parent.parent / "unit" / "client" / "fake_server.py"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    with subprocess.Popen([sys.executable, str(FAKE_SERVER)], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()


@pytest.fixture(autouse=True)
def environment(server_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATOLL_URL", server_url)
    monkeypatch.setenv("ATOLL_API_KEY", "atoll_test")
