"""Lines of a file, one by one; and files that may not be read or written."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.guest import searching
from atoll.guest.channel import Channel
from atoll.guest.users import User
from atoll.guest.writing import store

ROOT = User("root", 0, 0, (0,), "/root", "/bin/sh")


@given(st.text("ab\n", max_size=30).map(str.encode))
def test_lines_are_what_is_between_newlines(content: bytes) -> None:
    assert list(searching._lines(content)) == content.split(b"\n")


def test_the_first_match_does_not_wait_for_all_lines() -> None:
    content = b"\n" * (32 << 20)
    found = list(islice(searching._matches("x", content, re.compile(b"^")), 3))
    assert [match["line"] for match in found] == [1, 2, 3]


class Ear:
    """Hears what an operation says."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.end: dict[str, Any] = {}

    def send_event(self, _kind: str, value: dict[str, Any]) -> None:
        self.entries += value["entries"]

    def send_end(self, value: dict[str, Any]) -> None:
        self.end = value


def replace(root: Path) -> Ear:
    ear = Ear()
    searching.replace(ROOT, {"path": str(root), "pattern": "old", "replacement": "new"}, cast(Channel, ear))
    return ear


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name in "abc":
        (tmp_path / name).write_text("old")
    return tmp_path


def refusing(name: str, number: int) -> Callable[..., str]:
    """A `store` that cannot write one file."""

    def stored(target: str, *arguments: Any) -> str:
        if os.path.basename(target) == name:
            raise OSError(number, os.strerror(number), target)
        return store(target, *arguments)

    return stored


def test_a_file_that_may_not_be_written_is_passed_over(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "store", refusing("b", errno.EACCES))
    ear = replace(files)
    assert [os.path.basename(entry["path"]) for entry in ear.entries] == ["a", "c"]
    assert (ear.end["replaced"], ear.end["skipped"]) == (2, 1)
    assert [(files / name).read_text() for name in "abc"] == ["new", "old", "new"]
    with pytest.raises(PermissionError):
        replace(files / "b")  # it is the one that is meant


def test_an_error_in_the_middle_says_how_many_files_have_changed(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "store", refusing("b", errno.ENOSPC))
    with pytest.raises(OSError, match=r"1 files were changed") as caught:
        replace(files)
    assert caught.value.errno == errno.ENOSPC


@pytest.mark.parametrize("op", [searching.search, searching.replace])
def test_a_file_that_is_named_and_may_not_be_read_is_refused(
    files: Path, monkeypatch: pytest.MonkeyPatch, op: Any
) -> None:
    """Below a folder it is counted."""

    def closed(name: str) -> Any:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)

    monkeypatch.setattr(searching, "open_regular", closed)
    params = {"pattern": "old", "replacement": "new"}
    with pytest.raises(PermissionError):
        op(ROOT, {"path": str(files / "a"), **params}, Ear())
    ear = Ear()
    op(ROOT, {"path": str(files), **params}, ear)
    assert ear.end["skipped"] == 3
