"""What root does for a user who may not: it is done, and what is made is that user's."""

from __future__ import annotations

import os
import pwd
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from atoll.model import errors
from atoll.node.guestlink import GuestLink
from atoll.wire import guest as wire
from tests.listed import listed

pytestmark = pytest.mark.anyio

NOBODY = pwd.getpwnam("nobody")
FOR: dict[str, Any] = {"user": "nobody", "as_root": True}


async def once(data: bytes) -> AsyncIterator[bytes]:
    yield data


def owners(*paths: Path) -> list[tuple[int, int]]:
    return [(found.st_uid, found.st_gid) for found in (path.lstat() for path in paths)]


THEIRS, ROOTS = (NOBODY.pw_uid, NOBODY.pw_gid), (0, 0)


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A folder that is root's alone."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o700)
    return folder


@pytest.mark.parametrize("atomic", [True, False])
async def test_a_file_and_the_folders_above_it_are_given(link: GuestLink, closed: Path, atomic: bool) -> None:
    params = {"path": str(closed / "a/b/f"), "atomic": atomic, "claim": True, **FOR}
    await link.upload("file.write", params, once(b"1"))
    assert owners(closed, closed / "a", closed / "a/b", closed / "a/b/f") == [ROOTS, THEIRS, THEIRS, THEIRS]
    assert (closed / "a/b/f").stat().st_mode & 0o7777 == 0o644


@pytest.mark.parametrize("atomic", [True, False])
async def test_a_file_that_was_there_is_given_and_keeps_its_rights(link: GuestLink, closed: Path, atomic: bool) -> None:
    old = closed / "f"
    old.write_bytes(b"longer than before")
    old.chmod(0o640)
    (closed / "link").symlink_to("f")
    params = {"path": str(closed / "link"), "atomic": atomic, "claim": True, **FOR}
    await link.upload("file.write", params, once(b"1"))
    assert (old.read_bytes(), old.stat().st_mode & 0o7777) == (b"1", 0o640)
    assert owners(old, closed / "link") == [THEIRS, ROOTS]


async def test_what_the_user_may_not_see_is_read_moved_and_removed(link: GuestLink, closed: Path) -> None:
    (closed / "f").write_bytes(b"1")
    found = await link.call("file.stat", {"path": str(closed / "f"), **FOR})
    assert (found["uid"], found["size"]) == (0, 1)
    entries, _ = await listed(link, "file.list", {"path": str(closed), **FOR})
    assert [entry["name"] for entry in entries] == ["f"]
    async with link.stream("file.read", {"path": str(closed / "f"), **FOR}) as stream:
        assert [message.payload async for message in stream if isinstance(message, wire.Data)] == [b"1"]
    await link.call("file.move", {"path": str(closed / "f"), "target": str(closed / "n/g"), "parents": True, **FOR})
    assert owners(closed / "n", closed / "n/g") == [THEIRS, ROOTS]
    await link.call("file.mkdir", {"path": str(closed / "d/e"), **FOR})
    assert owners(closed / "d", closed / "d/e") == [THEIRS, THEIRS]
    await link.call("file.mkdir", {"path": str(closed / "d/./x") + "/../../y", **FOR})
    assert owners(closed, closed / "d/x", closed / "y") == [ROOTS, THEIRS, THEIRS]
    await link.call("file.remove", {"path": str(closed / "y"), **FOR})
    await link.call("file.remove", {"path": str(closed / "n"), "recursive": True, **FOR})
    assert os.listdir(closed) == ["d"]


async def test_names_begin_at_the_home_of_the_user(link: GuestLink) -> None:
    for name in (".", "~"):
        found = await link.call("file.stat", {"path": name, "follow": True, "user": "daemon", "as_root": True})
        assert os.path.normpath(found["path"]) == pwd.getpwnam("daemon").pw_dir


@pytest.mark.parametrize("op", ["file.chmod", "file.pack", "file.copy", "file.symlink"])
async def test_what_does_not_know_how_is_refused(link: GuestLink, closed: Path, op: str) -> None:
    params = {"path": str(closed / "f"), "target": str(closed / "g"), "mode": 0o777, **FOR}
    with pytest.raises(errors.InvalidArgument):
        await link.call(op, params)
    assert os.listdir(closed) == []


async def test_nobody_says_for_whom_but_who_may_be_root(link: GuestLink, closed: Path) -> None:
    """The field that a worker hears is the guest's own: a caller who writes it gets no rights by it."""
    done_for = {"name": "root", "uid": 0, "gid": 0, "groups": [0], "home": "/root", "shell": "/bin/sh"}
    with pytest.raises(errors.Forbidden):
        await link.call("file.list", {"path": str(closed), "user": "nobody", "done_for": done_for})
