"""Moving and copying where something is in the way: a full disk, another mount, what is there already."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from atoll.guest import changing
from atoll.guest.failure import refusal
from atoll.guest.users import User
from atoll.node.guestlink import GuestLink

ROOT = User("root", 0, 0, (0,), "/root", "/bin/sh")


class Ear:
    """Hears what an operation says."""

    def __init__(self) -> None:
        self.ok: dict[str, Any] = {}

    def send_ok(self, value: dict[str, Any]) -> None:
        self.ok = value


def do(op: Any, **params: Any) -> str:
    """How it ended: `ok`, or the code of its refusal."""
    try:
        op(ROOT, {name: str(value) for name, value in params.items()}, Ear())
    except Exception as error:
        return refusal(error).code
    return "ok"


@pytest.fixture
def mounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every folder is a mount of its own."""
    rename = os.rename

    def elsewhere(source: str, target: str, **more: Any) -> None:
        if os.path.dirname(source) != os.path.dirname(target):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source, None, target)
        rename(source, target, **more)

    monkeypatch.setattr(os, "rename", elsewhere)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes half of each file."""

    def half(source: str, target: str, **_: Any) -> None:
        content = Path(source).read_bytes()
        Path(target).write_bytes(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), source, None, target)

    monkeypatch.setattr(shutil, "copy2", half)


def tree(root: Path) -> dict[str, str | None]:
    return {
        str(path.relative_to(root)): None if path.is_dir() and not path.is_symlink() else path.read_text()
        for path in root.rglob("*")
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "from" / "source"
    (source / "deep/empty").mkdir(parents=True)
    (source / "a").write_text("new a")
    (source / "deep/b").write_text("new b")
    (source / "deep/b").chmod(0o640)
    (source / "link").symlink_to("a")
    (tmp_path / "to").mkdir()
    return source


@pytest.mark.usefixtures("mounts")
def test_a_folder_moves_to_another_mount(tmp_path: Path, source: Path) -> None:
    content = tree(source)
    (tmp_path / "to/empty").mkdir()  # a rename takes the place of an empty one, too
    assert do(changing.move, path=source, target=tmp_path / "to/empty") == "ok"
    assert tree(tmp_path / "to/empty") == content
    assert (tmp_path / "to/empty/link").is_symlink()
    assert (tmp_path / "to/empty/deep/b").stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path / "from") == []
    assert os.listdir(tmp_path / "to") == ["empty"]


@pytest.mark.usefixtures("mounts")
@pytest.mark.parametrize(
    ("name", "target", "code"),
    [("source", "full", "not_empty"), ("source/a", "full", "is_directory"), ("source", "file", "not_directory")],
)
def test_what_a_rename_refuses_is_refused_between_mounts_too(
    tmp_path: Path, source: Path, name: str, target: str, code: str
) -> None:
    (tmp_path / "to/full/kept").mkdir(parents=True)
    (tmp_path / "to/file").write_text("old")
    before = tree(tmp_path)
    assert do(changing.move, path=source.parent / name, target=tmp_path / "to" / target) == code
    assert tree(tmp_path) == before


@pytest.mark.usefixtures("mounts", "full")
@pytest.mark.parametrize("name", ["source", "source/a"])
def test_a_full_disk_leaves_both_sides_of_a_move(tmp_path: Path, source: Path, name: str) -> None:
    (tmp_path / "to/a").write_text("old a")
    before = tree(tmp_path)
    target = tmp_path / "to" / ("new" if name == "source" else "a")
    assert do(changing.move, path=source.parent / name, target=target) == "disk_full"
    assert tree(tmp_path) == before


@pytest.mark.usefixtures("full")
def test_a_full_disk_leaves_the_old_files_of_a_copied_folder(tmp_path: Path, source: Path) -> None:
    (tmp_path / "to/deep").mkdir()
    (tmp_path / "to/a").write_text("old a")
    (tmp_path / "to/deep/b").write_text("old b")
    assert do(changing.copy, path=source, target=tmp_path / "to") == "disk_full"
    assert {name: text for name, text in tree(tmp_path / "to").items() if text} in (
        {"a": "old a", "deep/b": "old b"},
        {"a": "old a", "deep/b": "old b", "link": "old a"},
    )


def test_a_folder_is_copied_over_another(tmp_path: Path, source: Path) -> None:
    (tmp_path / "to/kept").write_text("kept")
    (tmp_path / "to/a").write_text("old a")
    (tmp_path / "to/link").symlink_to("kept")
    assert do(changing.copy, path=source, target=tmp_path / "to") == "ok"
    assert tree(tmp_path / "to") == {**tree(source), "kept": "kept"}
    assert os.readlink(tmp_path / "to/link") == "a"
    assert do(changing.copy, path=source, target=source / "deep/in") == "invalid_argument"


def test_what_cannot_be_copied_is_told_and_the_rest_is_there(tmp_path: Path, source: Path) -> None:
    os.mkfifo(source / "0")
    assert do(changing.copy, path=source, target=tmp_path / "to") == "invalid_argument"
    content = {name: text for name, text in tree(tmp_path / "to").items() if name != "0"}
    assert content == {"a": "new a", "deep": None, "deep/b": "new b", "deep/empty": None, "link": "new a"}


@pytest.mark.anyio
async def test_touch_of_folders_and_of_files_that_may_not_be_written(link: GuestLink, tmp_path: Path) -> None:
    for above in (tmp_path, *tmp_path.parents):
        if above not in (Path("/"), Path("/tmp")):
            above.chmod(0o755)
    own, shared = tmp_path / "own", tmp_path / "shared"
    own.touch(0o400)
    os.chown(own, 65534, 65534)
    shared.touch()
    shared.chmod(0o666)
    (tmp_path / "folder").mkdir()
    times = {"mtime_ns": 10**9, "atime_ns": 2 * 10**9}
    assert (await link.call("file.touch", {"path": str(tmp_path / "folder"), **times}))["mtime_ns"] == 10**9
    assert (await link.call("file.touch", {"path": str(own), "user": "nobody", **times}))["atime_ns"] == 2 * 10**9
    os.utime(shared, (0, 0))
    assert (await link.call("file.touch", {"path": str(shared), "user": "nobody"}))["mtime_ns"] > 0
    assert (await link.call("file.touch", {"path": str(tmp_path / "new"), **times}))["mtime_ns"] == 10**9
    assert (tmp_path / "new").stat().st_size == 0


@pytest.mark.parametrize("op", [changing.xattr_get, changing.xattr_set])
def test_a_name_of_an_attribute_that_is_too_long_is_refused_by_its_bytes(tmp_path: Path, op: Any) -> None:
    for name in ("user." + "é" * 126, "user." + "a" * 251, "user." + "a" * 70_000):
        assert do(op, path=tmp_path, name=name, value="") == "invalid_argument"
    assert do(op, path=tmp_path, name="user." + "é" * 125, value="") in ("ok", "not_found", "unsupported")


def test_what_the_kernel_says_of_a_name_that_is_too_long_is_understood() -> None:
    assert refusal(OSError(errno.ERANGE, os.strerror(errno.ERANGE))).code == "invalid_argument"
