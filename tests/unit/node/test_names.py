"""Names follow from the data directory and lead back to their slots."""

from __future__ import annotations

from pathlib import Path

from atoll.node.names import HostNames


def test_two_data_directories_share_no_name(tmp_path: Path) -> None:
    one, two = HostNames.of(tmp_path / "one"), HostNames.of(tmp_path / "two")
    assert one.cgroup_parent != two.cgroup_parent
    assert two.netns_slot(one.netns_inner("ab")) is None


def test_the_same_directory_has_the_same_names_by_any_path(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert HostNames.of(tmp_path / "link") == HostNames.of(tmp_path)


def test_a_namespace_leads_back_to_its_slot(tmp_path: Path) -> None:
    names = HostNames.of(tmp_path)
    assert names.netns_slot(names.netns_inner("ab")) == "ab"
    assert names.netns_slot(names.netns_outer("ab")) == "ab"
    assert names.netns_slot("atoll-other") is None
    assert names.netns_slot(names.netns_prefix) is None
