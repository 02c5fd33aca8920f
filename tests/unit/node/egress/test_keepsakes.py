"""What a sandbox's network keeps, by sandbox and until it is gone."""

from __future__ import annotations

from pathlib import Path

from atoll.node.egress.keepsakes import Keepsakes


def test_a_folder_only_for_those_who_need_one(tmp_path: Path) -> None:
    folder = tmp_path / "network"
    keepsakes = Keepsakes(folder)
    keepsakes.traffic("quiet")
    assert not folder.exists()
    keepsakes.traffic("busy").add(up=1, down=1)
    assert [path.name for path in folder.iterdir()] == ["busy"]
    for path in (folder / "busy", folder / "busy" / "traffic"):
        assert path.stat().st_mode & 0o077 == 0
    keepsakes.forget("quiet")
    keepsakes.forget("busy")
    assert list(folder.iterdir()) == []
    assert keepsakes.traffic("busy").total == 0


def test_the_authority_is_the_same_for_a_whole_life_and_nobody_elses(tmp_path: Path) -> None:
    one = Keepsakes(tmp_path).authority("one").certificate_pem
    again = Keepsakes(tmp_path)
    assert again.authority("one").certificate_pem == one
    assert again.authority("two").certificate_pem != one
    assert (tmp_path / "one" / "authority.pem").stat().st_mode & 0o077 == 0
    again.forget("one")
    assert again.authority("one").certificate_pem != one


def test_what_belongs_to_nobody_is_swept(tmp_path: Path) -> None:
    before = Keepsakes(tmp_path)
    for name in ("lives", "gone"):
        before.traffic(name).add(up=1, down=0)
        before.authority(name)
    after = Keepsakes(tmp_path)
    after.sweep(frozenset({"lives"}))
    assert [path.name for path in tmp_path.iterdir()] == ["lives"]
    assert (after.traffic("lives").total, after.traffic("gone").total) == (1, 0)


def test_without_a_folder_nothing_is_written(tmp_path: Path) -> None:
    keepsakes = Keepsakes()
    keepsakes.traffic("one").add(up=1, down=2)
    assert keepsakes.bytes_up("one") == 1
    assert keepsakes.authority("one") is keepsakes.authority("one")
    keepsakes.sweep(frozenset())
    keepsakes.forget("one")
    assert keepsakes.bytes_up("one") == 0
    assert list(tmp_path.iterdir()) == []
