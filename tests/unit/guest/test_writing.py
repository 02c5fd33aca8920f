"""Writing where no new file can take the place of the old one: whole or not at all, nevertheless."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll.guest import writing
from atoll.guest.failure import Disconnected, refusal
from atoll.guest.users import User

ROOT = User("root", 0, 0, (0,), "/root", "/bin/sh")


@pytest.fixture(params=["folder", "owner"])
def fixed(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file whose folder may not be written, or whose owner may not be given to another file."""
    (tmp_path / "folder").mkdir()
    file = tmp_path / "folder" / "file"
    file.write_bytes(b"old and longer")
    if request.param == "owner":
        monkeypatch.setattr(writing, "_take_owner", lambda _fd, _old: False)
        return file
    really = os.open

    def refused(path: str, flags: int, mode: int = 0o777, **more: int) -> int:
        if str(path).startswith(f"{tmp_path}/folder/.atoll-"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return really(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", refused)
    return file


def test_it_is_written_in_place(fixed: Path) -> None:
    inode = fixed.stat().st_ino
    writing.store(str(fixed), {"mode": 0o640}, [b"new ", b"bytes"], ROOT)
    assert fixed.read_bytes() == b"new bytes"
    assert (fixed.stat().st_ino, fixed.stat().st_mode & 0o777) == (inode, 0o640)
    writing.store(str(fixed), {"append": True}, [b" more"], ROOT)
    assert fixed.read_bytes() == b"new bytes more"
    assert os.listdir(fixed.parent) == ["file"]


@pytest.mark.parametrize("append", [False, True])
def test_a_client_that_leaves_changes_nothing(fixed: Path, append: bool) -> None:
    def half() -> Iterator[bytes]:
        yield b"half"
        raise Disconnected("gone")

    with pytest.raises(Disconnected):
        writing.store(str(fixed), {"append": append}, half(), ROOT)
    assert fixed.read_bytes() == b"old and longer"
    assert os.listdir(fixed.parent) == ["file"]


@pytest.mark.parametrize("append", [False, True])
def test_a_full_disk_changes_nothing(fixed: Path, append: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_fd: int, _offset: int, _size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space") as caught:
        writing.store(str(fixed), {"append": append}, [b"new"], ROOT)
    assert refusal(caught.value).code == "disk_full"
    assert fixed.read_bytes() == b"old and longer"


def test_room_on_another_disk_is_asked_of_the_file_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of that is seen afterwards, nor if there is none."""
    file = tmp_path / "file"
    file.write_bytes(b"old")
    elsewhere = os.stat("/proc")
    stat = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **more: elsewhere if path == "/tmp" else stat(path, **more))
    writing._check_room(str(file), "/tmp", 1_000_000)
    assert file.read_bytes() == b"old"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            writing._check_room(str(file), "/tmp", 3_000_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.read_bytes() == b"old"
