"""Files become one: in order, all or nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from atoll.model import errors, limits
from atoll.node.guestlink import GuestLink

pytestmark = pytest.mark.anyio


@pytest.fixture
def parts(tmp_path: Path) -> list[str]:
    for name in "abc":
        (tmp_path / name).write_bytes(name.encode() * 3)
    return [str(tmp_path / name) for name in "abc"]


async def join(link: GuestLink, paths: list[str], target: Path | str) -> dict[str, Any]:
    return await link.call("file.join", {"paths": paths, "target": str(target)})


async def test_files_become_one_and_are_gone(link: GuestLink, tmp_path: Path, parts: list[str]) -> None:
    told = await join(link, parts, tmp_path / "new/whole")
    assert (told["path"], told["size"]) == (str(tmp_path / "new/whole"), 9)
    assert (tmp_path / "new/whole").read_bytes() == b"aaabbbccc"
    assert os.listdir(tmp_path) == ["new"]


async def test_one_of_them_may_be_the_whole_or_come_twice(link: GuestLink, tmp_path: Path, parts: list[str]) -> None:
    await join(link, [*parts, parts[1]], parts[0])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"aaabbbcccbbb"}


@pytest.mark.parametrize("wrong", ["nothing", "folder"])
async def test_what_cannot_be_joined_changes_nothing(
    link: GuestLink, tmp_path: Path, parts: list[str], wrong: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "whole").write_bytes(b"old")
    with pytest.raises(errors.AtollError) as caught:
        await join(link, [*parts, str(tmp_path / wrong)], tmp_path / "whole")
    assert caught.value.code == {"nothing": "not_found", "folder": "is_directory"}[wrong]
    assert (tmp_path / "whole").read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c", "folder", "whole"]


async def test_their_number_is_bounded(link: GuestLink, tmp_path: Path, parts: list[str]) -> None:
    for paths in ([], [parts[0]] * (limits.JOINED_FILES_MAX + 1)):
        with pytest.raises(errors.InvalidArgument):
            await join(link, paths, tmp_path / "whole")
