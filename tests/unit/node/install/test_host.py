"""What a host must have."""

from __future__ import annotations

import os

import pytest

from atoll.model.errors import Unavailable
from atoll.node.install import host


@pytest.mark.parametrize("release", ["5.10.0-30-amd64", "6.18.44-fc-v490", "6.1+deb", "10.0"])
def test_new_kernels_are_fine(release: str) -> None:
    assert host.kernel_problems(release) == []


@pytest.mark.parametrize("release", ["4.19.0", "5.4.0-generic", "garbage", ""])
def test_old_ones_are_named(release: str) -> None:
    assert host.kernel_problems(release)


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Unavailable) as caught:
        host.check()
    assert caught.value.code == "not_root"


def test_missing_programs_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    (problem,) = host._program_problems()
    assert "apt-get install" in problem
    assert "btrfs-progs" in problem
