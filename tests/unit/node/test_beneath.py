"""Nothing is opened outside of the folder, whatever the tree below it does meanwhile."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll.node import beneath


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "tree" / "a").mkdir(parents=True)
    (tmp_path / "tree" / "a" / "file").write_text("inside")
    fd = beneath.root_open(tmp_path / "tree")
    yield fd
    os.close(fd)


@pytest.mark.parametrize(
    ("link", "target"),
    [("up", "../secret"), ("absolute", "/etc/passwd"), ("around", "a/../../secret"), ("proc", "/proc/self/root/etc")],
)
def test_a_link_that_leads_out_is_not_followed(root: int, tmp_path: Path, link: str, target: str) -> None:
    (tmp_path / "tree" / link).symlink_to(target)
    for path in (link, f"{link}/passwd"):
        with pytest.raises(OSError, match="cross-device"):
            beneath.regular_open(root, path)
        with pytest.raises(OSError, match="cross-device"):
            beneath.folder_open(root, path)


def test_a_link_that_stays_inside_is(root: int, tmp_path: Path) -> None:
    (tmp_path / "tree" / "link").symlink_to("a/../a/file")
    fd, found = beneath.regular_open(root, "link")
    with os.fdopen(fd) as file:
        assert file.read() == "inside"
    assert stat.S_ISREG(found.st_mode)


def test_a_path_that_goes_up_is_refused(root: int) -> None:
    for path in ("..", "../secret", "a/../../secret", "/etc/passwd"):
        with pytest.raises(OSError, match="cross-device"):
            beneath.regular_open(root, path)


def test_pipes_sockets_and_devices_are_not_opened(root: int, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    os.mkfifo(tree / "pipe")
    os.mknod(tree / "zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tree / "socket"))
        for name in ("pipe", "zero", "socket"):
            with pytest.raises(OSError, match="not a regular file"):
                beneath.regular_open(root, name)


def test_a_folder_that_becomes_a_link_while_it_is_walked_leads_nowhere(root: int, tmp_path: Path) -> None:
    """A sandbox swaps a folder for a link to the host, again and again; a reader sees the file or nothing."""
    tree = tmp_path / "tree"
    (tree / "b").symlink_to("..")
    (tmp_path / "file").write_text("outside")
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            beneath.exchange(tree / "a", tree / "b")

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen = set()
    try:
        for _ in range(3000):
            try:
                fd, _ = beneath.regular_open(root, "a/file")
            except OSError:
                continue
            with os.fdopen(fd) as file:
                seen.add(file.read())
    finally:
        done.set()
        swapper.join()
    assert seen <= {"inside"}
