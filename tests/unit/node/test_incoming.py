"""Files that the node puts on a sandbox's disk: nowhere else, for their owner alone, and gone if nobody took them."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atoll.model import errors, limits
from atoll.node.guestlink import GuestStream
from atoll.node.incoming import IncomingFile, Incomings
from atoll.wire import guest as wire

FOLDER = Path(".atoll/incoming")


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    (tmp_path / "disk" / FOLDER).mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    return tmp_path / "disk"


def test_it_has_no_name_until_it_is_whole(disk: Path) -> None:
    file = IncomingFile(disk, 1000, 1001)
    file.add([b"a" * 5, memoryview(b"b" * 3), b""])
    file.add([b"c"])
    assert os.listdir(disk / FOLDER) == []
    name = file.named()
    found = (disk / FOLDER / name).stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (1000, 1001, 0o600)
    assert (disk / FOLDER / name).read_bytes() == b"aaaaabbbc"
    file.close()
    assert os.listdir(disk / FOLDER) == []


def test_one_that_was_taken_stays_where_it_is(disk: Path) -> None:
    file = IncomingFile(disk, 0, 0)
    (disk / FOLDER / file.named()).rename(disk / "taken")
    file.close()
    assert (disk / "taken").exists()


def test_one_that_is_given_up_leaves_nothing(disk: Path) -> None:
    file = IncomingFile(disk, 0, 0)
    file.add([b"x"])
    file.close()
    assert os.listdir(disk / FOLDER) == []


@pytest.mark.parametrize("target", ["../../outside", "/etc", ".", "../other"])
@pytest.mark.parametrize("step", [FOLDER, FOLDER.parent])
def test_no_link_is_followed(disk: Path, tmp_path: Path, target: str, step: Path) -> None:
    (disk / FOLDER).rmdir()
    if step != FOLDER:
        (disk / step).rmdir()
    (disk / "other" / FOLDER.name).mkdir(parents=True)
    (disk / step).symlink_to(target)
    with pytest.raises(OSError, match=r"symbolic links|No such file"):
        IncomingFile(disk, 0, 0)
    assert not os.listdir(tmp_path / "outside")
    assert not os.listdir(disk / "other" / FOLDER.name)


@pytest.mark.parametrize(
    ("op", "params", "is_offered"),
    [
        ("file.write", {"size": limits.INCOMING_BYTES_MIN}, True),
        ("file.write", {"size": limits.INCOMING_BYTES_MIN - 1}, False),
        ("file.write", {}, False),
        ("file.unpack", {"size": limits.INCOMING_BYTES_MIN}, False),
    ],
)
def test_only_large_files_are_worth_it(op: str, params: dict[str, int], is_offered: bool) -> None:
    assert ("incoming" in Incomings().offered(op, params)) is is_offered


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The node's end of a connection, and the guest's."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def agreement(**owner: Any) -> bytes:
    return wire.control({"event": {"type": "incoming", **owner}})


@pytest.mark.anyio
@pytest.mark.parametrize(
    "said",
    [
        agreement(uid=0),
        agreement(uid="0", gid="0"),
        agreement(uid=True, gid=0),
        agreement(uid=-1, gid=0),
        agreement(uid=0, gid=2**32 - 1),
        wire.control({"event": {"type": "other"}}),
        wire.control({"ok": {}}),
    ],
)
async def test_a_guest_that_answers_nonsense_gets_nothing(
    disk: Path, ends: tuple[socket.socket, socket.socket], said: bytes
) -> None:
    ends[1].sendall(said)
    with pytest.raises(errors.GuestFailed):
        async with Incomings().taken(GuestStream(ends[0], 5, None), {"incoming": True}, disk):
            pytest.fail("it was taken")


@pytest.mark.anyio
@pytest.mark.parametrize("said", [wire.control({"event": {"type": "more"}}), b""])
async def test_a_guest_that_speaks_or_leaves_before_the_end_ends_it(
    disk: Path, ends: tuple[socket.socket, socket.socket], said: bytes
) -> None:
    ends[1].sendall(agreement(uid=0, gid=0))
    async with Incomings().taken(GuestStream(ends[0], 5, None), {"incoming": True}, disk) as stream:
        await stream.send(bytes(limits.INCOMING_WRITE_BYTES))
        ends[1].sendall(said)
        ends[1].shutdown(socket.SHUT_WR)
        with pytest.raises(errors.GuestFailed):
            await stream.send(bytes(limits.INCOMING_WRITE_BYTES))
    assert os.listdir(disk / FOLDER) == []


@pytest.mark.anyio
@pytest.mark.parametrize("declined", [True, False])
async def test_what_is_declined_or_cannot_be_made_is_sent(
    disk: Path, ends: tuple[socket.socket, socket.socket], declined: bool
) -> None:
    ends[1].sendall(agreement() if declined else agreement(uid=0, gid=0))
    if not declined:
        (disk / FOLDER).rmdir()
    async with Incomings().taken(GuestStream(ends[0], 5, None), {"incoming": True}, disk) as stream:
        await stream.send(b"abc")
    assert ends[1].recv(100).endswith(b"abc")
