"""A walk through folders: what is hidden is left out with all that is below it, if that is asked for."""

from __future__ import annotations

from pathlib import Path

from atoll.guest.listing import walk


def test_what_is_hidden_can_be_left_out(tmp_path: Path) -> None:
    for name in (".cache/fonts/a", "work/.git/b", "work/c", ".d"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    seen = [path.removeprefix(f"{tmp_path}/") for path, _, _ in walk(str(tmp_path), 8, hidden=False)]
    assert seen == ["work", "work/c"]
    everything = [path.removeprefix(f"{tmp_path}/") for path, _, _ in walk(str(tmp_path), 8)]
    assert ".cache/fonts/a" in everything
    assert "work/.git/b" in everything
