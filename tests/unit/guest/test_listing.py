"""A walk through folders: what is hidden is left out with all that is below it, if that is asked for; what is too deep
always, and whoever walks says so.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, cast

import pytest

from atoll.guest import listing, packing, searching, watching
from atoll.guest.channel import Channel
from atoll.guest.listing import walk
from atoll.guest.users import User
from atoll.model import limits


def test_what_is_hidden_can_be_left_out(tmp_path: Path) -> None:
    for name in (".cache/fonts/a", "work/.git/b", "work/c", ".d"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    seen = [path.removeprefix(f"{tmp_path}/") for path, _, _ in walk(str(tmp_path), 8, hidden=False)]
    assert seen == ["work", "work/c"]
    everything = [path.removeprefix(f"{tmp_path}/") for path, _, _ in walk(str(tmp_path), 8)]
    assert ".cache/fonts/a" in everything
    assert "work/.git/b" in everything


@pytest.fixture
def deep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With one folder more than is gone into, and a file in it."""
    monkeypatch.setattr(limits, "TREE_DEPTH_MAX", 3)
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "a/b/c/file").write_text("word")
    (tmp_path / "a/b/file").write_text("word")
    return tmp_path


class Ear:
    """Hears what an operation says."""

    def __init__(self) -> None:
        self.end: dict[str, Any] = {}

    def send_event(self, kind: str, value: dict[str, Any]) -> None:
        pass

    def send_data(self, _kind: int, payload: memoryview) -> None:
        pass

    def send_end(self, value: dict[str, Any]) -> None:
        self.end = value


def end_of(op: Any, root: Path, **params: Any) -> dict[str, Any]:
    ear = Ear()
    op(User("root", 0, 0, (0,), "/root", "/bin/sh"), {"path": str(root), **params}, ear)
    return ear.end


def test_a_list_that_leaves_out_what_is_too_deep_says_that_it_is_cut(deep: Path) -> None:
    assert end_of(listing.find, deep)["truncated"] is True
    assert end_of(listing.list_folder, deep, depth=3)["truncated"] is True
    assert end_of(listing.list_folder, deep, depth=2)["truncated"] is False  # that is what was asked for
    assert end_of(listing.find, deep / "a")["truncated"] is False


def test_a_search_counts_the_folders_that_it_leaves_out(deep: Path) -> None:
    for op in (searching.search, searching.replace):
        end = end_of(op, deep, pattern="word", replacement="word")
        assert (end["count"], end["skipped"]) == (1, 1)
        end = end_of(op, deep / "a", pattern="word", replacement="word")
        assert (end["count"], end["skipped"]) == (2, 0)


def test_an_archive_names_the_folders_that_it_leaves_out(deep: Path) -> None:
    end = end_of(packing.pack, deep.parent, names=[deep.name])
    assert (end["skipped"], end["left_out"]) == ([f"{deep.name}/a/b/c"], 1)


def test_a_watch_names_the_folders_that_it_leaves_out(deep: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        watch = watching.Watch(str(deep), cast(watching.Inotify, Watches()), Channel(ours), recursive=True)
        assert watch._add_below(str(deep), tell=False) == [str(deep / "a/b/c")]


class Watches:
    def add(self, folder: str) -> None:
        pass
