"""What differs between two trees, and files that are no files of their own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from atoll.model import limits
from atoll.model.errors import TooLarge
from atoll.node.disks.compare import changes, differences


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


def copied_with_times(before: Path, tmp_path: Path) -> Path:
    after = tmp_path / "after"
    shutil.copytree(before, after, symlinks=True)
    return after


def changed_behind_its_time(file: Path, content: str) -> None:
    was = file.stat()
    file.write_text(content)
    os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))


def test_a_time_that_was_set_back_hides_no_change(before: Path, tmp_path: Path) -> None:
    """Of the same size, with the same time: as `touch -r`, `cp -p` and `tar` leave them. The same content is none."""
    after = copied_with_times(before, tmp_path)
    assert list(differences(before, after)) == []
    changed_behind_its_time(after / "changed", "b")
    changed_behind_its_time(after / "same", "same")
    link = (after / "link").lstat()
    (after / "link").unlink()
    (after / "link").symlink_to("/etc/shadow")
    os.utime(after / "link", ns=(link.st_atime_ns, link.st_mtime_ns), follow_symlinks=False)
    assert [(one.change, one.path) for one in differences(before, after)] == [
        ("changed", "/changed"),
        ("changed", "/link"),
    ]


def test_what_is_too_large_to_be_read_counts_as_changed(
    before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = copied_with_times(before, tmp_path)
    monkeypatch.setattr(limits, "DIFF_READ_BYTES_MAX", 2)
    assert [one.path for one in differences(before, after)] == ["/same"]


def test_an_attribute_is_a_change(before: Path, tmp_path: Path) -> None:
    after = copied_with_times(before, tmp_path)
    try:
        os.setxattr(after / "same", "user.mark", b"1")
        os.setxattr(after / "folder", "user.mark", b"1")
    except OSError:
        pytest.skip("this filesystem has no attributes")
    assert [one.path for one in differences(before, after)] == ["/folder", "/same"]


def test_a_folder_too_deep_to_be_looked_into_is_named(
    before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = copied_with_times(before, tmp_path)
    monkeypatch.setattr(limits, "TREE_DEPTH_MAX", 1)
    (after / "folder/deep/gone").write_text("other")
    assert [(one.change, one.path) for one in differences(before, after)] == [("changed", "/folder/deep")]


def test_names_that_are_not_text(before: Path, tmp_path: Path) -> None:
    after = tmp_path / "after"
    shutil.copytree(before, after, symlinks=True)
    (Path(os.fsdecode(os.fsencode(after) + b"/\xff"))).write_text("x")
    (only,) = differences(before, after)
    assert os.fsencode(only.path) == b"/\xff"


def test_a_folder_of_endless_names_is_refused_while_it_is_read(
    before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of both sides together, and of all folders that the walk is in."""
    after = copied_with_times(before, tmp_path)
    held = 64 + len("changed")
    names = ("folder", "deep", "gone", "changed", "same", "link", "way")
    all_of_one = sum(64 + len(name) for name in names)
    monkeypatch.setattr(limits, "FOLDER_NAMES_BYTES_MAX", 2 * all_of_one)
    assert list(differences(before, after)) == []
    monkeypatch.setattr(limits, "FOLDER_NAMES_BYTES_MAX", 2 * all_of_one - held)
    with pytest.raises(TooLarge) as refused:
        list(differences(before, after))
    assert refused.value.hint


def test_an_answer_ends_where_it_is_full(before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    after = tmp_path / "after"
    after.mkdir()
    whole = changes(before, after, lambda: None)
    assert (len(whole.items), whole.truncated) == (7, False)
    monkeypatch.setattr(limits, "DIFF_PATHS_BYTES_MAX", len("/changed/folder"))
    cut = changes(before, after, lambda: None)
    assert ([one.path for one in cut.items], cut.truncated) == (["/changed", "/folder"], True)
    monkeypatch.setattr(limits, "DIFF_ENTRIES_MAX", 1)
    cut = changes(before, after, lambda: None)
    assert ([one.path for one in cut.items], cut.truncated) == (["/changed"], True)
