"""What differs between two trees, and files that are no files of their own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from atoll.model.errors import InvalidArgument, NotFound
from atoll.node.disks.compare import differences, file_open


@pytest.fixture
def before(tmp_path: Path) -> Path:
    root = tmp_path / "before"
    (root / "folder/deep").mkdir(parents=True)
    (root / "same").write_text("same")
    (root / "changed").write_text("a")
    (root / "folder/deep/gone").write_text("x")
    (root / "link").symlink_to("/etc/passwd")
    (root / "way").symlink_to("/etc")
    return root


def test_added_changed_and_removed(before: Path, tmp_path: Path) -> None:
    after = tmp_path / "after"
    shutil.copytree(before, after, symlinks=True)
    (after / "changed").write_text("longer")
    shutil.rmtree(after / "folder")
    (after / "folder").write_text("a file now")
    (after / "new").write_text("n")
    found = [(one.change, one.path, one.type) for one in differences(before, after)]
    assert found == [
        ("changed", "/changed", "file"),
        ("changed", "/folder", "file"),
        ("removed", "/folder/deep", "directory"),
        ("removed", "/folder/deep/gone", "file"),
        ("added", "/new", "file"),
    ]
    assert list(differences(before, before)) == []


def test_names_that_are_not_text(before: Path, tmp_path: Path) -> None:
    after = tmp_path / "after"
    shutil.copytree(before, after, symlinks=True)
    (Path(os.fsdecode(os.fsencode(after) + b"/\xff"))).write_text("x")
    (only,) = differences(before, after)
    assert os.fsencode(only.path) == b"/\xff"


def test_only_files_of_the_disk_itself_are_opened(before: Path) -> None:
    fd = file_open(before, "/folder/deep/gone")
    assert os.read(fd, 10) == b"x"
    os.close(fd)
    for path in ("/link", "/way/passwd", "/folder", "same", "/", "/../same"):
        with pytest.raises(InvalidArgument):
            file_open(before, path)
    with pytest.raises(NotFound):
        file_open(before, "/nothing")
    os.mkfifo(before / "pipe")
    with pytest.raises(InvalidArgument):
        file_open(before, "/pipe")
