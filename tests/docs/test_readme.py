"""The README's first program runs against a real server and prints what the README says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from atoll.testing.server import Server
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)


def test_there_is_one_short_program_and_its_output() -> None:
    (program,), (_,) = blocks("python"), blocks("text")
    compile(program, "README.md", "exec")
    assert len(program.splitlines()) <= 10


@pytest.mark.real
def test_the_first_program_runs(server: Server) -> None:
    (program,), (shown,) = blocks("python"), blocks("text")
    environment = {**os.environ, "ATOLL_URL": server.url, "ATOLL_API_KEY": server.key}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, shown), done.stderr
    wait_until(lambda: not server.boxes(), 5, "the sandbox is gone")
