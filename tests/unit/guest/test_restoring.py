"""Files that are put back: as they were from their first moment, or not at all."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from atoll.guest import restoring
from atoll.guest.failure import Disconnected, Refused
from atoll.guest.users import User

ROOT = User("root", 0, 0, (0,), "/root", "/bin/sh")


class Channel:
    """An upload, and what became of it."""

    def __init__(self, *chunks: bytes, cut: bool = False) -> None:
        self._chunks = chunks
        self._cut = cut
        self.said: list[dict[str, Any]] = []

    def read_upload(self) -> Iterator[bytes]:
        yield from self._chunks
        if self._cut:
            raise Disconnected("gone")

    def send_ok(self, value: dict[str, Any]) -> None:
        self.said.append(value)


def like(mode: int, mtime_ns: int = 5_000_000_000, **more: Any) -> dict[str, Any]:
    return {"mode": mode, "uid": os.geteuid(), "gid": os.getegid(), "mtime_ns": mtime_ns, **more}


def put_back(channel: Channel, name: Path, likeness: dict[str, Any], folders: list[dict[str, Any]]) -> None:
    above = [like(0o755)] * (len(name.parent.parts) - 1 - len(folders))
    params = {"path": str(name), "likeness": likeness, "folders": [*above, *folders]}
    restoring.put_back(ROOT, params, cast(Any, channel))


def test_it_comes_back_as_it_was_with_the_folders_above_it(tmp_path: Path) -> None:
    name = tmp_path / "one" / "two" / "file"
    channel = Channel(b"a", b"b")
    attributes = {"user.mark": base64.b64encode(b"1").decode()}
    put_back(channel, name, like(0o4710, attributes=attributes), [like(0o700), like(0o2750)])
    assert channel.said == [{}]
    assert name.read_bytes() == b"ab"
    assert [path.stat().st_mode & 0o7777 for path in (name, name.parent, name.parent.parent)] == [0o4710, 0o2750, 0o700]
    assert name.stat().st_mtime_ns == 5_000_000_000
    try:
        assert os.getxattr(name, "user.mark") == b"1"
    except OSError:
        pytest.skip("this filesystem has no attributes")


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("other")
    (tmp_path / "name").symlink_to(tmp_path / "other")
    put_back(Channel(b"back"), tmp_path / "name", like(0o644), [])
    assert (tmp_path / "name").read_text() == "back"
    assert not (tmp_path / "name").is_symlink()
    assert (tmp_path / "other").read_text() == "other"


def test_nobody_sees_it_before_it_is_whole_and_its_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[bool] = []
    chown = os.fchown

    def seen(fd: int, uid: int, gid: int) -> None:
        given.append((tmp_path / "name").exists())
        chown(fd, uid, gid)

    monkeypatch.setattr(os, "fchown", seen)
    put_back(Channel(b"back"), tmp_path / "name", like(0o644), [])
    assert given == [False]


def test_an_upload_that_is_cut_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "name").write_text("old")
    with pytest.raises(Disconnected):
        put_back(Channel(b"half", cut=True), tmp_path / "name", like(0o644), [])
    assert (tmp_path / "name").read_text() == "old"
    assert os.listdir(tmp_path) == ["name"]


def test_folders_that_do_not_fit_the_path_are_refused(tmp_path: Path) -> None:
    params = {"path": str(tmp_path / "name"), "likeness": like(0o644), "folders": []}
    with pytest.raises(Refused):
        restoring.put_back(ROOT, params, cast(Any, Channel(b"x")))
    assert os.listdir(tmp_path) == []
