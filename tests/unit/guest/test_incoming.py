"""The folder that large uploads come in by: made when a sandbox boots, and what may be moved out of it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from atoll.guest import incoming


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / ".atoll" / "incoming"
    monkeypatch.setattr(incoming, "INCOMING_FOLDER", str(folder))
    return folder


def test_it_is_made_once_and_swept_at_every_boot(folder: Path) -> None:
    incoming.prepare()
    (folder / "left").write_text("x")
    (folder / "link").symlink_to(folder.parent)
    (folder / "empty").mkdir()
    folder.chmod(0o777)
    incoming.prepare()
    assert os.listdir(folder) == []
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1733


def test_what_a_link_leads_to_is_let_be(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("x")
    folder.parent.mkdir()
    folder.symlink_to(tmp_path / "precious")
    mode = (tmp_path / "precious").stat().st_mode
    incoming.prepare()
    assert (tmp_path / "precious" / "file").read_text() == "x"
    assert (tmp_path / "precious").stat().st_mode == mode
    assert not incoming.suits(str(tmp_path), None)


def test_only_what_is_as_if_it_was_made_there_is_moved(folder: Path, tmp_path: Path) -> None:
    assert not incoming.suits(str(tmp_path), None)
    incoming.prepare()
    assert incoming.suits(str(tmp_path), None)
    assert not incoming.suits(str(tmp_path / "missing"), None)
    assert not incoming.suits("/proc", None)
    tmp_path.chmod(0o2755)
    assert not incoming.suits(str(tmp_path), None)
    tmp_path.chmod(0o755)
    folder.chmod(0o777)
    assert not incoming.suits(str(tmp_path), None)
