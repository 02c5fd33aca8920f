"""One file of a disk: what it was besides its bytes, and files that are no files of their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from atoll.model.errors import InvalidArgument, NotFound
from atoll.node.disks.original import original_open


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    (tmp_path / "folder/deep").mkdir(parents=True)
    (tmp_path / "folder/deep/file").write_text("x")
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "way").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


def test_what_it_was_and_what_lay_above_it(disk: Path) -> None:
    (disk / "folder").chmod(0o2750)
    file = disk / "folder/deep/file"
    file.chmod(0o4711)
    os.utime(file, ns=(1, 123456789))
    original = original_open(disk, "/folder/deep/file")
    try:
        assert (os.read(original.fd, 10), original.size_bytes) == (b"x", 1)
    finally:
        os.close(original.fd)
    own = {"uid": os.geteuid(), "gid": os.getegid()}
    assert original.likeness == {**own, "mode": 0o4711, "mtime_ns": 123456789, "attributes": {}}
    above = [(one["mode"], one["uid"]) for one in original.folders]
    assert above == [(0o2750, os.geteuid()), (0o755, os.geteuid())]


@pytest.mark.parametrize("path", ["/link", "/way/passwd", "/folder", "same", "/", "/../same", "/pipe"])
def test_only_files_of_the_disk_itself_are_opened(disk: Path, path: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(InvalidArgument):
        original_open(disk, path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_one_that_is_not_there(disk: Path) -> None:
    with pytest.raises(NotFound):
        original_open(disk, "/nothing")
