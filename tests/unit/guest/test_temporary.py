"""The folder of temporary files, as a root finds it that has none."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from atoll.guest import temporary


def test_it_is_made_for_everybody_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "root/tmp"
    monkeypatch.setattr(temporary, "PATH", str(place))
    for _ in range(2):
        temporary.lay_bare()
        assert stat.S_IMODE(place.stat().st_mode) == 0o1777


def test_a_root_that_cannot_have_one_starts_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tmp").write_text("a file")
    monkeypatch.setattr(temporary, "PATH", str(tmp_path / "tmp"))
    temporary.lay_bare()
    assert "stays in memory" in capfd.readouterr().err
