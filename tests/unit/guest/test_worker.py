"""What a worker finds out before it starts a program."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.guest.worker import _program


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    """Three in which programs are looked for: with a folder, a text and a program of the same name."""
    (tmp_path / "a" / "tool").mkdir(parents=True)
    for name in ("b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "c" / "tool").chmod(0o755)
    return [str(tmp_path / name) for name in ("a", "missing", "b", "c")]


def test_it_is_the_first_that_can_be_run(folders: list[str]) -> None:
    assert _program("tool", ":".join(folders)) == f"{folders[-1]}/tool"


def test_what_is_not_plain_is_left_to_the_exec(folders: list[str]) -> None:
    """A path, a name that is nowhere, and a folder that is seen from the program's working directory."""
    assert _program("./tool", folders[-1]) is None
    assert _program("tool", ":".join(folders[:-1])) is None
    assert _program("tool", f":{folders[-1]}") is None
    assert _program("tool", f"bin:{folders[-1]}") is None
    assert _program("tool", "") is None
