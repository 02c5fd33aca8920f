"""The CLI run as a program, against a stand-in server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from atoll.cli.main import main
from tests.waiting import wait_until

REAL_SERVER = Path(__file__).resolve().parent.parent / "client" / "real_server.py"
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


@pytest.fixture(scope="session")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The whole server on a node without a machine: how to reach it."""
    data = tmp_path_factory.mktemp("data")
    with subprocess.Popen([sys.executable, str(REAL_SERVER), str(data)]) as server:
        wait_until((data / "server.json").exists, 30, "the server serves")
        url = json.loads((data / "server.json").read_text())["url"]
        yield {"ATOLL_URL": url, "ATOLL_API_KEY": (data / "key").read_text().strip(), "ATOLL_DATA": str(data)}
        server.terminate()


@pytest.fixture
def served(control: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The CLI against the whole server, in this process: a program of its own takes half a second to start."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        for name, value in {**control, **variables}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        said = capsys.readouterr()
        code = ended.value.code
        return subprocess.CompletedProcess(arguments, code if isinstance(code, int) else 1, said.out, said.err)

    return run


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
