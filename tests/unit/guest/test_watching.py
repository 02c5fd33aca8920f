"""Watching a folder whose folders come, go and are closed to the one who watches."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import threading
from pathlib import Path

import pytest

from atoll.guest import worker
from atoll.guest.channel import Channel
from atoll.guest.users import User
from atoll.model import limits
from atoll.node.guestlink import GuestLink, GuestStream
from atoll.wire import framing
from atoll.wire import guest as wire

pytestmark = pytest.mark.anyio

ROOT = User("root", 0, 0, (0,), "/root", "/bin/sh")


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


async def told_until(stream: GuestStream, folder: Path, last: tuple[str, str]) -> list[tuple[str, str]]:
    told: list[tuple[str, str]] = []
    while last not in told:
        message = await stream.receive()
        assert isinstance(message, wire.Event)
        told.append((message.value["type"], os.path.relpath(message.value["path"], folder)))
    return told


async def test_what_happens_in_a_folder_that_was_moved_out_is_not_told(link: GuestLink, folder: Path) -> None:
    (folder / "a/b").mkdir(parents=True)
    outside = folder.parent / "outside"
    async with link.stream("file.watch", {"path": str(folder), "recursive": True}, idle_s=5) as stream:
        await stream.receive()
        os.rename(folder / "a", outside)
        assert await told_until(stream, folder, ("removed", "a")) == [("moved_from", "a"), ("removed", "a")]
        (outside / "b/secret").touch()
        (folder / "last").touch()
        assert await told_until(stream, folder, ("created", "last")) == [("created", "last")]


async def test_a_folder_that_is_moved_out_and_in_again_is_watched(link: GuestLink, folder: Path) -> None:
    """At once, under its old name, under which there is another one meanwhile."""
    (folder / "a/b").mkdir(parents=True)
    outside = folder.parent / "outside"
    async with link.stream("file.watch", {"path": str(folder), "recursive": True}, idle_s=5) as stream:
        await stream.receive()
        os.rename(folder / "a", outside)
        (folder / "a").mkdir()
        (folder / "a").rmdir()
        os.rename(outside, folder / "a")
        await told_until(stream, folder, ("removed", "a"))
        await told_until(stream, folder, ("created", "a/b"))
        await asyncio.sleep(2 * limits.WATCH_MOVE_S)
        (folder / "a/b/file").touch()
        assert ("removed", "a") not in await told_until(stream, folder, ("created", "a/b/file"))


async def test_a_folder_that_is_moved_within_keeps_its_watches(link: GuestLink, folder: Path) -> None:
    (folder / "a/b").mkdir(parents=True)
    async with link.stream("file.watch", {"path": str(folder), "recursive": True}, idle_s=5) as stream:
        await stream.receive()
        os.rename(folder / "a", folder / "c")
        await asyncio.sleep(2 * limits.WATCH_MOVE_S)
        (folder / "c/b/file").touch()
        told = await told_until(stream, folder, ("created", "c/b/file"))
    assert told == [("moved_from", "a"), ("moved_to", "c"), ("created", "c/b/file")]


def test_a_failure_is_told_in_a_whole_frame_to_a_client_that_is_slow(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had not read yet stands before it, and is not cut."""
    monkeypatch.setattr(limits, "WATCH_FOLDERS_MAX", 1)
    ours, theirs = socket.socketpair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    request = {"op": "file.watch", "path": str(folder), "recursive": True}
    served = threading.Thread(target=worker.serve, args=(ROOT, request, Channel(theirs)))
    with ours:
        served.start()
        decoder, messages = framing.Decoder(), list[wire.Message]()
        messages += [wire.parse_reply(frame) for frame in decoder.feed(ours.recv(65536))]
        for number in range(300):
            (folder / f"{number:0200}").touch()
        (folder / "one too many").mkdir()
        ours.settimeout(10)
        while data := ours.recv(1 << 20):
            messages += [wire.parse_reply(frame) for frame in decoder.feed(data)]
            if isinstance(messages[-1], wire.Failure):
                ours.shutdown(socket.SHUT_WR)
    served.join(10)
    assert isinstance(messages[-1], wire.Failure)
    assert messages[-1].code == "too_large"
    assert sum(isinstance(message, wire.Event) for message in messages) > 300
