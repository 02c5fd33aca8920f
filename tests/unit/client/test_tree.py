"""Folders of this machine: what goes out, and what a hostile archive can not do to them."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from atoll.client._progress import Meter
from atoll.client._tree import TreeSource, TreeTarget
from atoll.model.errors import AtollError, GuestFailed, InvalidArgument, TooLarge


def archive_of(*entries: tuple[str, bytes, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, kind, target in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.mode = kind, target, 0o4755
            entry.size = 3 if kind == tarfile.REGTYPE else 0
            archive.addfile(entry, io.BytesIO(b"abc"))
    return buffer.getvalue()


def unpack(archive: bytes, root: Path, size_bytes_max: int | None = None) -> tuple[str, ...]:
    with TreeTarget(root, size_bytes_max, Meter(None, None)) as target:
        target.write(archive)
        return target.copied().skipped


def test_there_and_back(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/file").write_bytes(os.urandom(1_000_001))
    (root / "a/link").symlink_to("b/file")
    os.link(root / "a/b/file", root / "hard")
    (root / os.fsdecode(b"\xff")).touch(0o600)
    source = TreeSource(root, Meter(None, None))
    assert unpack(b"".join(source), tmp_path / "copy") == ()
    assert (tmp_path / "copy/a/link").read_bytes() == (root / "hard").read_bytes()
    assert (tmp_path / "copy" / os.fsdecode(b"\xff")).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "entries",
    [
        [("../out", tarfile.REGTYPE, "")],
        [("/out", tarfile.REGTYPE, "")],
        [("d", tarfile.DIRTYPE, ""), ("l", tarfile.SYMTYPE, "d"), ("l/x", tarfile.REGTYPE, "")],
        [("h", tarfile.LNKTYPE, "../out")],
        [("f", tarfile.REGTYPE, ""), ("f/x", tarfile.REGTYPE, "")],
    ],
)
def test_nothing_leaves_the_folder(tmp_path: Path, entries: list[tuple[str, bytes, str]]) -> None:
    with pytest.raises(GuestFailed) as caught:
        unpack(archive_of(*entries), tmp_path / "in")
    assert caught.value.code == "unsafe_archive"
    assert os.listdir(tmp_path) == ["in"]


def test_links_that_lead_out_are_left_out(tmp_path: Path) -> None:
    archive = archive_of(
        ("l", tarfile.SYMTYPE, "/etc"), ("d/m", tarfile.SYMTYPE, "../../x"), ("f", tarfile.REGTYPE, "")
    )
    assert unpack(archive, tmp_path / "in") == ("l", "d/m")
    assert (tmp_path / "in/f").read_bytes() == b"abc"
    assert (tmp_path / "in/f").stat().st_mode & 0o7777 == 0o755


def test_a_link_that_was_there_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "in/l").symlink_to("../out")
    with pytest.raises(GuestFailed):
        unpack(archive_of(("l/x", tarfile.REGTYPE, "")), tmp_path / "in")
    (tmp_path / "in/f").symlink_to("../out/f")
    unpack(archive_of(("f", tarfile.REGTYPE, "")), tmp_path / "in")
    assert os.listdir(tmp_path / "out") == []


def test_bounds_and_archives_that_break_off(tmp_path: Path) -> None:
    archive = archive_of(("a", tarfile.REGTYPE, ""), ("b", tarfile.REGTYPE, ""))
    with pytest.raises(TooLarge):
        unpack(archive, tmp_path / "in", size_bytes_max=5)
    with pytest.raises(GuestFailed):
        unpack(archive[:1024], tmp_path / "in")


def test_a_file_takes_its_place_when_it_is_whole(tmp_path: Path) -> None:
    """Until then, and if it never is, the old one stays; so with links."""
    archive = archive_of(("a", tarfile.REGTYPE, ""), ("h", tarfile.LNKTYPE, "a"), ("l", tarfile.SYMTYPE, "a"))
    for name in ("a", "h", "l"):
        (tmp_path / name).write_text("old")
    with TreeTarget(tmp_path, None, Meter(None, None)) as target:
        target.write(archive[:514])
        assert {path.name: path.read_text() for path in tmp_path.iterdir() if path.name[0] != "."}["a"] == "old"
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old", "h": "old", "l": "old"}
    for _ in range(2):
        assert unpack(archive, tmp_path) == ()
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "abc", "h": "abc", "l": "abc"}
    (tmp_path / "d").mkdir()
    with pytest.raises(InvalidArgument):
        unpack(archive_of(("d", tarfile.REGTYPE, "")), tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["a", "d", "h", "l"]


@pytest.mark.parametrize("name", ["missing", "file"])
def test_what_is_no_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    acts: list[Callable[[], object]] = [lambda: TreeSource(tmp_path / name, Meter(None, None))]
    if name == "file":
        acts.append(lambda: TreeTarget(tmp_path / "file", None, Meter(None, None)))
    for act in acts:
        with pytest.raises(InvalidArgument) as caught:
            act()
        assert isinstance(caught.value, AtollError)
        assert caught.value.code == "local_file"
