"""Where a link of an archive leads can be told from its text alone."""

from __future__ import annotations

import errno
import io
import os
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.guest.failure import Refused
from atoll.guest.unpacking import Target, check_link, entry_parts, unpack
from atoll.guest.users import User
from atoll.model import limits

parts = st.lists(st.sampled_from(["a", "b", "c", "..", ".", ""]), min_size=1, max_size=5).map("/".join)


@pytest.mark.parametrize("name", ["/a", "../a", "a/../../b", "a/..", "a\0b"])
def test_names_that_lead_out(name: str) -> None:
    with pytest.raises(Refused):
        entry_parts(name)


@pytest.mark.parametrize(("name", "target"), [("l", "a/b"), ("d/l", "../a"), ("d/e/l", "../../a/b"), ("l", ".")])
def test_links_that_stay_inside(name: str, target: str) -> None:
    check_link(entry_parts(name), target)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(parts, parts), max_size=6))
def test_no_set_of_links_leads_out(links: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / "root"
        root.mkdir()
        target = Target(str(root), 1000)
        try:
            for name, text in links:
                with suppress(Refused, OSError, IndexError):
                    target.put_link(entry_parts(name), text)
        finally:
            os.close(target.root_fd)
        for found, folders, files in os.walk(root):
            for entry in (*folders, *files):
                with suppress(OSError, RuntimeError):  # a link to itself leads nowhere
                    assert Path(found, entry).resolve(strict=True).is_relative_to(root)


class _Failing(io.BytesIO):
    """Bytes, and then a full disk, which comes from the other side but is as bad."""

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        if not data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return data


def test_a_file_takes_its_place_when_it_is_whole(tmp_path: Path) -> None:
    """Until then, and if it never is, the old one stays."""
    (tmp_path / "d").mkdir()
    old = tmp_path / "d/file"
    old.write_text("old")
    target = Target(str(tmp_path), limits.MIB)
    with pytest.raises(OSError, match="No space") as caught:
        target.put_file(["d", "file"], 0o644, 0, _Failing(b"half of it"))
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "file")
    assert old.read_text() == "old"
    assert os.listdir(tmp_path / "d") == ["file"]
    with open(old) as reader:
        target.put_file(["d", "file"], 0o604, 0, io.BytesIO(b"new"))
        assert reader.read() == "old"
    assert (old.read_text(), old.stat().st_mode & 0o777) == ("new", 0o604)
    target.put_hard_link(["d", "other"], ["d", "file"])
    target.put_hard_link(["d", "other"], ["d", "file"])
    target.put_link(["d", "link"], "file")
    target.put_link(["d", "link"], "other")
    assert sorted(os.listdir(tmp_path / "d")) == ["file", "link", "other"]
    assert (old.stat().st_nlink, os.readlink(tmp_path / "d/link")) == (2, "other")
    with pytest.raises(IsADirectoryError):
        target.put_file(["d"], 0o644, 0, io.BytesIO(b"x"))
    assert os.listdir(tmp_path) == ["d"]
    os.close(target.root_fd)


class _Sent:
    """A channel on which an archive comes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read_upload(self) -> list[memoryview]:
        return [memoryview(self._data)]


@pytest.mark.parametrize("name", [b"\0abc", b"\xc2abc"])
def test_a_damaged_name_in_a_zip_is_no_fault_of_ours(tmp_path: Path, name: bytes) -> None:
    """One that is empty, and one that is not the text that it says to be."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("n\u00e4bc", b"x")
    data = buffer.getvalue().replace("n\u00e4bc".encode(), name + b"d")
    root = User("root", 0, 0, (0,), "/root", "/bin/sh")
    with pytest.raises(Refused, match="not a usable archive"):
        unpack(root, {"path": str(tmp_path / "in"), "format": "zip"}, _Sent(data))  # type: ignore[arg-type]
