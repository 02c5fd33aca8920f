"""Files of a volume on the host: what works, what is refused, and that nothing else is touched."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from atoll.model import limits
from atoll.node import volumefiles
from atoll.wire.volumes import Ownership

AS_USUAL = Ownership()


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").write_text("kept")
    volume = tmp_path / "volume"
    volume.mkdir()
    return volume


def write(volume: Path, path: str, data: bytes, ownership: Ownership = AS_USUAL, *, overwrite: bool = True) -> None:
    writing = volumefiles.Writing(volume, path, ownership, parents=True, overwrite=overwrite)
    try:
        writing.add(data)
        writing.commit()
    finally:
        writing.close()


def read(volume: Path, path: str, offset: int = 0, length: int | None = None) -> bytes:
    reading = volumefiles.Reading(volume, path, offset, length)
    try:
        return b"".join(iter(reading.piece, b""))
    finally:
        reading.close()


def remove(volume: Path, path: str, *, recursive: bool = True) -> None:
    for _ in volumefiles.file_remove(volume, path, recursive=recursive):
        pass


def refused(number: int, call: Callable[[], object]) -> None:
    with pytest.raises(OSError) as caught:  # noqa: PT011 - its number is looked at
        call()
    assert caught.value.errno == number


def test_what_is_written_is_read(volume: Path) -> None:
    write(volume, "/deep/er/file", b"0123456789")
    assert read(volume, "deep/er/file") == b"0123456789"
    assert read(volume, "/deep//./er/file", 2, 3) == b"234"
    assert read(volume, "/deep/er/file", 20) == b""
    assert os.listdir(volume / "deep" / "er") == ["file"]
    found = volumefiles.file_stat(volume, "/deep/er/file", follow=False)
    assert (found.path, found.name, found.type, found.size) == ("/deep/er/file", "file", "file", 10)


def test_a_new_file_is_the_users_and_a_replaced_one_stays_whose_it_was(volume: Path) -> None:
    write(volume, "a", b"1")
    assert (os.stat(volume / "a").st_uid, stat.S_IMODE(os.stat(volume / "a").st_mode)) == (1000, 0o644)
    write(volume, "a", b"2", Ownership(7, 8, 0o600))
    write(volume, "a", b"3")
    found = os.stat(volume / "a")
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (7, 8, 0o600)
    changed = volumefiles.file_change(volume, "a", Ownership(mode=0o755, gid=9))
    assert (changed.uid, changed.gid, changed.mode) == (7, 9, 0o755)


def test_a_file_that_is_not_whole_is_not_there(volume: Path) -> None:
    write(volume, "a", b"old")
    writing = volumefiles.Writing(volume, "a", AS_USUAL, parents=True, overwrite=True)
    writing.add(b"half")
    assert read(volume, "a") == b"old"
    writing.close()
    assert os.listdir(volume) == ["a"]
    refused(errno.EEXIST, lambda: write(volume, "a", b"x", overwrite=False))


def test_a_link_is_written_through_and_never_out(volume: Path) -> None:
    write(volume, "d/file", b"1")
    (volume / "link").symlink_to("d/file")
    write(volume, "link", b"2")
    assert (volume / "link").is_symlink()
    assert read(volume, "d/file") == b"2"
    for number, target in enumerate(("../outside/kept", str(volume.parent / "outside" / "kept"), "d/../../outside/n")):
        (volume / f"out{number}").symlink_to(target)
        refused(errno.EXDEV, lambda name=f"out{number}": write(volume, name, b"gone"))  # type: ignore[misc]
        refused(errno.EXDEV, lambda name=f"out{number}": read(volume, name))  # type: ignore[misc]
    (volume / "folder").symlink_to("../outside")
    refused(errno.EXDEV, lambda: write(volume, "folder/new", b""))
    refused(errno.EXDEV, lambda: remove(volume, "folder/kept"))
    refused(errno.EXDEV, lambda: volumefiles.file_list(volume, "folder", 1, 10))
    refused(errno.EXDEV, lambda: volumefiles.file_move(volume, "d", "folder/d", overwrite=True, parents=False))
    (volume / "self").symlink_to("self")
    refused(errno.ELOOP, lambda: write(volume, "self", b""))
    assert os.listdir(volume.parent / "outside") == ["kept"]
    assert (volume.parent / "outside" / "kept").read_text() == "kept"


def test_a_path_is_of_the_volume(volume: Path) -> None:
    for path in ("../outside/kept", "a/../../outside/kept", "..", "a\0b"):
        refused(errno.EINVAL, lambda path=path: read(volume, path))  # type: ignore[misc]
        refused(errno.EINVAL, lambda path=path: write(volume, path, b""))  # type: ignore[misc]
    for path in ("/", "", "."):
        refused(errno.EINVAL, lambda path=path: remove(volume, path))  # type: ignore[misc]
        refused(errno.EINVAL, lambda path=path: write(volume, path, b""))  # type: ignore[misc]


def test_special_files_are_shown_and_not_used(volume: Path) -> None:
    os.mkfifo(volume / "pipe")
    for call in (lambda: read(volume, "pipe"), lambda: write(volume, "pipe", b"x")):
        refused(errno.EINVAL, call)
    refused(errno.EINVAL, lambda: volumefiles.file_change(volume, "pipe", Ownership(mode=0o600)))
    assert [entry.type for entry in volumefiles.file_list(volume, "/", 1, 10).items] == ["fifo"]
    remove(volume, "pipe")
    assert os.listdir(volume) == []


def test_listing_has_a_depth_and_an_end(volume: Path) -> None:
    for path in ("a/b/c", "a/d", "e"):
        write(volume, path, b"1")
    (volume / "l").symlink_to("nowhere")
    listed = volumefiles.file_list(volume, "/", 1, 100)
    assert [(entry.path, entry.type) for entry in listed.items] == [
        ("/a", "directory"),
        ("/e", "file"),
        ("/l", "symlink"),
    ]
    assert listed.items[2].target == "nowhere"
    assert [entry.path for entry in volumefiles.file_list(volume, "a", 2, 100).items] == ["/a/b", "/a/b/c", "/a/d"]
    cut = volumefiles.file_list(volume, "/", 5, 2)
    assert cut.truncated
    assert len(cut.items) == 2
    refused(errno.ENOTDIR, lambda: volumefiles.file_list(volume, "e", 1, 10))
    refused(errno.ENOENT, lambda: volumefiles.file_list(volume, "nothing", 1, 10))


def test_moving(volume: Path) -> None:
    write(volume, "a", b"a")
    write(volume, "b", b"b")
    refused(errno.EEXIST, lambda: volumefiles.file_move(volume, "a", "b", overwrite=False, parents=False))
    refused(errno.ENOENT, lambda: volumefiles.file_move(volume, "a", "new/b", overwrite=True, parents=False))
    moved = volumefiles.file_move(volume, "a", "/new/c", overwrite=True, parents=True)
    assert (moved.path, read(volume, "new/c")) == ("/new/c", b"a")
    refused(errno.EINVAL, lambda: volumefiles.file_move(volume, "new", "new/er", overwrite=True, parents=False))


def test_folders(volume: Path) -> None:
    made = volumefiles.directory_create(volume, "x/y", Ownership(5, 6, 0o700), parents=True, exist_ok=True)
    assert (made.path, made.uid, made.gid, made.mode) == ("/x/y", 5, 6, 0o700)
    assert os.stat(volume / "x").st_uid == 1000
    refused(errno.EEXIST, lambda: volumefiles.directory_create(volume, "x/y", AS_USUAL, parents=True, exist_ok=False))
    refused(errno.ENOENT, lambda: volumefiles.directory_create(volume, "p/q", AS_USUAL, parents=False, exist_ok=True))
    write(volume, "file", b"")
    refused(errno.ENOTDIR, lambda: volumefiles.directory_create(volume, "file", AS_USUAL, parents=True, exist_ok=True))
    refused(errno.ENOTEMPTY, lambda: remove(volume, "x", recursive=False))
    remove(volume, "x")
    assert os.listdir(volume) == ["file"]


def test_a_deep_and_wide_folder_goes_and_what_its_links_lead_to_stays(volume: Path) -> None:
    """Deeper than a path may be long, and with more files than one step takes."""
    (volume / "top").mkdir()
    (volume / "top" / "link").symlink_to("../../outside")
    for number in range(limits.VOLUME_STEP_ENTRIES + 50):
        (volume / "top" / f"f{number}").touch()
    fd = os.open(volume / "top", os.O_RDONLY)
    for _ in range(600):
        os.mkdir("directory-name", dir_fd=fd)
        inner = os.open("directory-name", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    descriptors = len(os.listdir("/proc/self/fd"))
    remove(volume, "top")
    assert os.listdir(volume) == []
    assert os.listdir(volume.parent / "outside") == ["kept"]
    assert len(os.listdir("/proc/self/fd")) == descriptors
