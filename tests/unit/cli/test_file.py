"""`atoll file`: what it says of a sandbox's files."""

from __future__ import annotations

import json

import pytest

from .conftest import Run


@pytest.fixture
def made(atoll: Run) -> str:
    return atoll("sandbox", "create").stdout.strip()


def test_a_list_that_was_cut_says_so(atoll: Run, made: str) -> None:
    """Where it does not get into what a program reads. Positive control: with room for all."""
    assert (
        atoll("sandbox", "exec", made, "mkdir a; touch a/x.py a/y.py; mkdir b; cd b; touch $(seq 51)").returncode == 0
    )
    cut = atoll("file", "find", f"{made}:a", "*.py", "--limit", "1", "--json")
    assert (len(json.loads(cut.stdout)), cut.stderr) == (1, "there are more\n")
    whole = atoll("file", "find", f"{made}:a", "*.py", "--json")
    assert (len(json.loads(whole.stdout)), whole.stderr) == (2, "")
    assert atoll("file", "ls", f"{made}:b").stderr == "there are more\n"
    assert atoll("file", "ls", f"{made}:a").stderr == ""
