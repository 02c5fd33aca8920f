"""`atoll run`: code and scripts, their output and exit code, and the sandbox gone afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from atoll.cli.run import local_file

from .conftest import Run


def live(atoll: Run) -> list[str]:
    return [view["id"] for view in json.loads(atoll("sandbox", "ls", "--json").stdout)]


def test_code_runs_and_nothing_is_left(atoll: Run) -> None:
    before = live(atoll)
    done = atoll("run", "import os, sys; print(6*7, os.environ['A'], sys.argv[1:]); sys.exit(4)", "x", "-e", "A=1")
    assert (done.stdout, done.returncode) == ("42 1 ['x']\n", 4)
    assert live(atoll) == before


def test_code_from_standard_input(atoll: Run) -> None:
    assert atoll("run", "-", stdin="print(1+1)").stdout == "2\n"


def test_keep_leaves_it(atoll: Run) -> None:
    done = atoll("run", "--keep", "print(1)")
    identity = done.stderr.strip().removeprefix("kept: ")
    assert identity in live(atoll)
    assert atoll("sandbox", "kill", identity).returncode == 0


def test_what_is_a_file_and_what_is_code(tmp_path: Path) -> None:
    script = tmp_path / "a script.py"
    script.write_text("print(1)")
    assert local_file(str(script)) == script
    assert local_file("print(6*7)") is None
    assert local_file("x=1\ny=2") is None
    assert local_file("a" * 5000) is None
    with pytest.raises(click.UsageError):
        local_file("missing.py")
