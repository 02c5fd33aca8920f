"""Archives of trees that change while they are read, or that may not be read whole."""

from __future__ import annotations

import errno
import io
import json
import os
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from atoll.client._progress import Meter
from atoll.client._tree import TreeTarget
from atoll.guest import packing
from atoll.guest.users import User
from atoll.model import limits
from atoll.model.files import SKIPPED_FIELD

ROOT = User("root", 0, 0, (0,), "/root", "/bin/sh")


class Ear:
    """Hears what an operation says, and may do something when the first bytes come."""

    def __init__(self) -> None:
        self.data = b""
        self.end: dict[str, Any] = {}

    def send_event(self, kind: str, value: dict[str, Any]) -> None:
        pass

    def send_data(self, _kind: int, payload: memoryview) -> None:
        self.data += payload

    def send_end(self, value: dict[str, Any]) -> None:
        self.end = value


def pack(root: Path, kind: str = "tar", **params: Any) -> Ear:
    ear = Ear()
    packing.pack(ROOT, {"path": str(root), "format": kind, **params}, ear)  # type: ignore[arg-type]
    return ear


def content(data: bytes, kind: str) -> dict[str, bytes]:
    if kind == "zip":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {one.name: archive.extractfile(one).read() for one in archive if one.isreg()}  # type: ignore[union-attr]


@pytest.fixture
def living(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One file that may not be read, one that becomes shorter, one that goes away, and a closed folder."""
    root = tmp_path / "root"
    (root / "closed").mkdir(parents=True)
    for name in ("closed/x", "gone", "shorter", "unreadable", "whole"):
        (root / name).write_bytes(b"x" * 1000)
    really, read = os.open, packing.Shrunk.read

    def refused(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        if path in (f"{root}/unreadable", f"{root}/closed"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        if path == f"{root}/gone":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return really(path, flags, mode, **more)

    def cut_first(self: packing.Shrunk, size: int = -1) -> bytes:
        if os.readlink(f"/proc/self/fd/{self._file.fileno()}").endswith("shorter"):
            os.truncate(root / "shorter", 300)
        return read(self, size)

    monkeypatch.setattr(packing.Shrunk, "read", cut_first)
    monkeypatch.setattr(os, "open", refused)
    return root


def test_a_zip_says_in_its_comment_what_it_left_out(living: Path) -> None:
    """Positive control: one that is whole has none."""
    with zipfile.ZipFile(io.BytesIO(pack(living, "zip").data)) as archive:
        name, _, told = archive.comment.decode("ascii").partition("=")
    assert (name, sorted(json.loads(told))) == (SKIPPED_FIELD, ["closed", "shorter", "unreadable"])
    with zipfile.ZipFile(io.BytesIO(pack(living, "zip", names=["whole"]).data)) as archive:
        assert archive.comment == b""


def test_names_that_are_no_utf8_do_not_hide_each_other_in_a_zip(tmp_path: Path) -> None:
    """One whose spelling is the very name of another is left out, and said to be."""
    for name in (b"\xff", b"\xfe", b"\\xff", "ü".encode()):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(name)
    ear = pack(tmp_path, "zip")
    assert content(ear.data, "zip") == {"\\xff": b"\\xff", "\\xfe": b"\xfe", "ü": "ü".encode()}
    assert ear.end["skipped"] == [os.fsdecode(b"\xff")]


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "zip"])
def test_what_cannot_be_read_is_left_out_and_named(living: Path, kind: str) -> None:
    ear = pack(living, kind)
    found = content(ear.data, kind)
    assert found.keys() == {"shorter", "whole"}
    assert found["whole"] == b"x" * 1000
    assert found["shorter"] == b"x" * 300 + bytes(700)
    assert sorted(ear.end["skipped"]) == ["closed", "shorter", "unreadable"]


def test_who_pulls_a_living_folder_hears_what_is_missing(living: Path, tmp_path: Path) -> None:
    data = pack(living).data
    with TreeTarget(tmp_path / "copy", None, Meter(None, None)) as target:
        target.write(data)
        copied = target.copied()
    assert sorted(copied.skipped) == ["closed", "shorter", "unreadable"]
    assert copied.entries == 3
    assert sorted(os.listdir(tmp_path / "copy")) == ["closed", "shorter", "whole"]


def test_so_many_names_as_one_header_holds() -> None:
    skipped = packing.Skipped()
    for number in range(2000):
        skipped.add(f"{number:0100}")
    assert skipped.count == 2000
    assert 100 < len(skipped.names) < 2000
    info = packing._note("/", skipped)
    assert len(info.pax_headers[SKIPPED_FIELD]) < limits.TAR_EXTENDED_BYTES_MAX


def test_what_was_named_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    with pytest.raises(FileNotFoundError):
        pack(tmp_path, names=["a", "b"])
    assert content(pack(tmp_path, names=["a"]).data, "tar") == {"a": b"a"}


def test_a_large_tree_is_not_held(tmp_path: Path) -> None:
    """Entries come one by one: the first before the others are looked at."""
    for number in range(50):
        (tmp_path / f"{number:02}").mkdir()
    expanded = packing._expand(str(tmp_path), [], packing.Skipped())
    assert next(expanded)[1] == "00"
    os.rmdir(tmp_path / "49")
    assert len(list(expanded)) == 48
