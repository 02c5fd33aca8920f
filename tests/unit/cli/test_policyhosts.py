"""Hosts are proposed from what this machine itself is configured to use."""

from __future__ import annotations

from pathlib import Path

from atoll.cli.policyhosts import hosts_in, proposed


def test_hosts_in_texts() -> None:
    text = "# https://no.example.org\nindex-url = https://user:pw@Index.Example.org/simple\n"
    text += "deb http://deb.example.net:3142/ x"
    assert hosts_in([text]) == ["deb.example.net:3142", "index.example.org"]
    git = "url = git@git.example.org:team/repo.git\nurl = ssh://git@other.example.org/x"
    assert hosts_in([git], ssh=True) == ["git.example.org:22", "other.example.org:22"]


def test_lists_from_a_home(tmp_path: Path) -> None:
    (tmp_path / ".npmrc").write_text("registry=https://npm.example.org/\n")
    (tmp_path / ".gitconfig").write_text('[url "https://mirror.example.org/"]\n  insteadOf = https://a.example/\n')
    found = proposed(tmp_path, tmp_path / "etc", tmp_path, {"PIP_INDEX_URL": "https://pip.example.org/simple"})
    assert found == {"packages": ["npm.example.org", "pip.example.org"], "git": ["a.example", "mirror.example.org"]}


def test_lists_from_variables_in_any_case_and_the_files_that_they_name(tmp_path: Path) -> None:
    (tmp_path / "pip.ini").write_text("[global]\nindex-url = https://pip.example.org/simple\n")
    variables = {"PIP_CONFIG_FILE": str(tmp_path / "pip.ini"), "npm_config_registry": "https://npm.example.org:4873/"}
    found = proposed(tmp_path, tmp_path, tmp_path, variables)
    assert found["packages"] == ["npm.example.org:4873", "pip.example.org"]
