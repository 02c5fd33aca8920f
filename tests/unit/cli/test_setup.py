"""`atoll setup` says in words what stops it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from atoll.cli.setup import setup


def test_without_root_nothing_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = CliRunner().invoke(setup, ["--data", str(tmp_path / "data"), "--cache", str(tmp_path / "cache")])
    assert result.exit_code == 1
    assert "needs root" in result.output
    assert "sudo" in result.output
    assert list(tmp_path.iterdir()) == []


def test_removing_without_root_is_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (tmp_path / "data").mkdir()
    result = CliRunner().invoke(
        setup, ["--remove", "--data", str(tmp_path / "data"), "--cache", str(tmp_path / "cache")]
    )
    assert result.exit_code == 1
    assert (tmp_path / "data").exists()
