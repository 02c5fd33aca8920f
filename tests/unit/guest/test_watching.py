"""Watching a folder whose folders come, go and are closed to the one who watches."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from atoll.node.guestlink import GuestLink
from atoll.wire import guest as wire

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One that everybody can reach and write to."""
    for above in (tmp_path, *tmp_path.parents):
        if above not in (Path("/"), Path("/tmp")):
            above.chmod(0o755)
    watched = tmp_path / "watched"
    watched.mkdir()
    return watched


async def test_folders_that_come_and_go_do_not_end_it(link: GuestLink, folder: Path) -> None:
    created = set()
    async with link.stream("file.watch", {"path": str(folder), "recursive": True}, idle_s=5) as stream:
        await stream.receive()
        for _ in range(300):
            os.rmdir(tempfile.mkdtemp(dir=folder))
        (folder / "last").mkdir()
        (folder / "last/file").touch()
        async for message in stream:
            assert isinstance(message, wire.Event)
            assert message.value["type"] != "unreadable"
            if message.value["type"] == "created":
                created.add(os.path.relpath(message.value["path"], folder))
            if "last/file" in created:
                break
    assert len(created) > 2


async def test_a_folder_that_may_not_be_read_is_left_out_and_named(link: GuestLink, folder: Path) -> None:
    (folder / "closed").mkdir(0o700)
    (folder / "open/deep").mkdir(parents=True)
    told: list[tuple[str, str]] = []

    async def until(change: str, name: str) -> None:
        while (change, name) not in told:
            message = await stream.receive()
            assert isinstance(message, wire.Event)
            told.append((message.value["type"], os.path.relpath(message.value["path"], folder)))

    params = {"path": str(folder), "recursive": True, "user": "nobody"}
    async with link.stream("file.watch", params, idle_s=5) as stream:
        await until("unreadable", "closed")
        assert told[0] == ("watching", ".")
        (folder / "later").mkdir(0o700)
        await until("unreadable", "later")
        (folder / "open/deep/file").touch()
        await until("created", "open/deep/file")
        (folder / "later").chmod(0o755)
        await until("attributes", "later")
        (folder / "later/file").touch()
        await until("created", "later/file")


async def test_a_folder_from_another_mount_is_watched_as_any_other(link: GuestLink, folder: Path) -> None:
    """It is filled under a name that is not told of, and then takes its place."""
    hidden = folder / ".atoll-0123456789abcdef"
    told: list[tuple[str, str]] = []
    async with link.stream("file.watch", {"path": str(folder), "recursive": True}, idle_s=5) as stream:
        await stream.receive()
        (hidden / "deep").mkdir(parents=True)
        hidden.rename(folder / "moved")
        while ("created", "moved/deep") not in told:
            message = await stream.receive()
            assert isinstance(message, wire.Event)
            told.append((message.value["type"], os.path.relpath(message.value["path"], folder)))
        (folder / "moved/deep/file").touch()
        while ("created", "moved/deep/file") not in told:
            message = await stream.receive()
            assert isinstance(message, wire.Event)
            told.append((message.value["type"], os.path.relpath(message.value["path"], folder)))
    assert told[0] == ("created", "moved")
