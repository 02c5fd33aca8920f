"""Trees that are deeper than a path may be long, and folders that change while somebody is in them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from atoll.guest import changing
from atoll.guest.channel import Channel
from atoll.guest.descent import Descent, each_below, remove_tree
from tests.unit.guest.test_changing import ROOT, Ear, do

DEPTH = 1200
NAME = "folder"  # times DEPTH that is more than PATH_MAX


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A file at the bottom of a deep tree, which is gone afterwards: others could not even remove it."""
    top = tmp_path / "deep"
    top.mkdir()
    fd = os.open(top, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir(NAME, dir_fd=fd)
        below = os.open(NAME, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("bottom", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=fd))
    os.close(fd)
    yield top
    for left in tmp_path.iterdir():
        remove_tree(str(left), leave=True)


def bottom(top: Path) -> list[int]:
    """The rights of what is at the bottom of each way down."""
    return [os.stat(name, dir_fd=fd).st_mode & 0o777 for fd, name in each_below(str(top)) if name == "bottom"]


def test_a_deep_tree_is_copied_moved_to_another_mount_and_removed(deep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = os.rename
    copied, moved = deep.with_name("copied"), deep.with_name("moved")

    def elsewhere(source: str, target: str) -> None:
        if source == str(copied):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source, None, target)
        rename(source, target)

    monkeypatch.setattr(os, "rename", elsewhere)
    assert do(changing.copy, path=deep, target=copied) == "ok"
    assert do(changing.move, path=copied, target=moved) == "ok"
    assert bottom(moved) == [0o600]
    assert not copied.exists()
    changing.remove(ROOT, {"path": str(moved), "recursive": True}, cast(Channel, Ear()))
    assert os.listdir(deep.parent) == ["deep"]


def test_a_link_in_the_place_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    """It appears after the folder was listed, as an attacker would have it."""
    (tmp_path / "top" / "a").mkdir(parents=True)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("kept")

    class Swapped(Descent):
        def entries(self) -> list[tuple[str, bool]]:
            found = super().entries()
            if self.is_at_top:
                os.rename(tmp_path / "top" / "a", tmp_path / "elsewhere")
                os.symlink(tmp_path / "kept", tmp_path / "top" / "a")
            return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("atoll.guest.descent.Descent", Swapped)
        remove_tree(str(tmp_path / "top"))
    assert (tmp_path / "kept" / "file").read_text() == "kept"
    assert not (tmp_path / "top").exists()


def test_a_folder_that_is_moved_away_leads_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "top" / "a" / "b").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    with Descent(str(tmp_path / "top")) as at:
        at.down("a")
        at.down("b")
        os.rename(tmp_path / "top" / "a" / "b", tmp_path / "other" / "b")
        with pytest.raises(OSError, match="moved away") as caught:
            at.up()
    assert caught.value.filename == str(tmp_path / "top" / "a" / "b")


def test_a_folder_is_copied_into_one_that_a_link_leads_to(tmp_path: Path) -> None:
    for name in ("from/a/b", "from/z", "to", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "from/a/b/file").write_text("x")
    (tmp_path / "from/z/file").write_text("z")
    (tmp_path / "to/a").symlink_to(tmp_path / "elsewhere")
    assert do(changing.copy, path=tmp_path / "from", target=tmp_path / "to") == "ok"
    assert (tmp_path / "elsewhere/b/file").read_text() == "x"
    assert (tmp_path / "to/z/file").read_text() == "z"


def test_what_cannot_be_removed_is_told_by_its_whole_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "top" / "a").mkdir(parents=True)
    (tmp_path / "top" / "a" / "file").write_text("")

    def refuse(name: str, *, dir_fd: int) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        with pytest.raises(PermissionError) as caught:
            remove_tree(str(tmp_path / "top"))
    assert caught.value.filename == str(tmp_path / "top" / "a" / "file")
