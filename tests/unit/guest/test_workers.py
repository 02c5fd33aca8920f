"""Workers of a real guest: one per user, of few users at a time, and nothing is lost when one retires."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from atoll.guest.failure import Refused
from atoll.guest.pump import Pump
from atoll.guest.tree import Entry
from atoll.guest.users import User
from atoll.guest.workers import WorkerLink, Workers
from atoll.guest.zygote import Zygote
from atoll.model import errors, limits
from atoll.node.guestlink import GuestLink, GuestStream
from atoll.wire import guest as wire
from tests.listed import listed
from tests.waiting import wait_until

pytestmark = pytest.mark.anyio

FIRST_UID = 40_000


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def workers(guest: Any) -> list[int]:
    [zygote] = [child for child in children(guest.pid) if Path(f"/proc/{child}/cmdline").read_bytes().count(b"--port")]
    return children(zygote)


def uid_of(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except FileNotFoundError:
        return -1


async def end_of(stream: GuestStream) -> dict[str, Any]:
    async for message in stream:
        if isinstance(message, wire.End):
            return message.value
    raise AssertionError("no end")


async def run_as_others(link: GuestLink) -> None:
    """As more users than have a worker at hand."""
    for uid in range(FIRST_UID, FIRST_UID + limits.WORKERS_MAX + 4):
        async with link.stream("process.start", {"argv": ["id", "-u"], "user": uid, "cwd": "/"}) as stream:
            assert (await end_of(stream))["code"] == 0


async def test_few_workers_stay_however_many_users_there_were(guest: Any) -> None:
    await run_as_others(guest.link)
    wait_until(lambda: len(workers(guest)) <= limits.WORKERS_MAX, 5.0)


async def test_a_program_outlives_the_worker_that_started_it(guest: Any) -> None:
    params = {"cmd": "read line; echo $line; exit 7", "user": FIRST_UID - 1, "cwd": "/", "stdin": True}
    async with guest.link.stream("process.start", params) as stream:
        started = await stream.receive()
        assert isinstance(started, wire.Event)
        await run_as_others(guest.link)
        wait_until(lambda: FIRST_UID - 1 not in map(uid_of, workers(guest)), 5.0)
        await stream.send(b"on\n")
        said = await stream.receive()
        assert isinstance(said, wire.Data)
        assert said.payload == b"on\n"
        end = await end_of(stream)
    assert (end["code"], end["stdout_bytes"]) == (7, 3)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that every user may read; pytest's own are its user's alone."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


async def test_a_file_operation_is_done_before_its_worker_ends(guest: Any, open_folder: Path) -> None:
    params = {"path": str(open_folder), "user": FIRST_UID - 2}
    async with guest.link.stream("file.watch", params) as stream:
        assert isinstance(await stream.receive(), wire.Event)
        await run_as_others(guest.link)
        (open_folder / "new").write_text("")
        change = await stream.receive()
    assert isinstance(change, wire.Event)
    assert change.value["path"] == str(open_folder / "new")
    wait_until(lambda: len(workers(guest)) <= limits.WORKERS_MAX, 5.0)


async def test_searches_and_archives_at_once_have_a_bound(guest: Any, open_folder: Path) -> None:
    """Each is a process. One that has ended makes room for another."""

    def searching() -> int:
        return sum(uid_of(pid) == FIRST_UID - 3 for pid in workers(guest))

    (open_folder / "text").write_text("x" * 200)
    given = {"path": str(open_folder), "user": FIRST_UID - 3}
    async with AsyncExitStack() as searches:
        for _ in range(limits.ONE_OFFS_MAX):
            await searches.enter_async_context(guest.link.stream("file.search", {**given, "pattern": "(x+x+)+y"}))
        wait_until(lambda: searching() == limits.ONE_OFFS_MAX, 10.0)
        with pytest.raises(errors.LimitExceeded) as caught:
            await listed(guest.link, "file.search", {**given, "pattern": "x"})
        assert caught.value.code == "busy"
    wait_until(lambda: not searching(), 20.0)  # their callers have left
    found, _ = await listed(guest.link, "file.search", {**given, "pattern": "x"})
    assert len(found) == 1


def test_too_many_users_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them with file operations that go on, so that no worker may end."""
    monkeypatch.setattr(limits, "WORKER_RETIRES_S", 0.05)
    monkeypatch.setattr(limits, "WORKERS_RETIRING_MAX", 2)
    table = Workers(cast(Zygote, None), cast(Pump, None), lambda *_: None, 0)
    table._retired = [cast(WorkerLink, SimpleNamespace(alive=True, pid=pid)) for pid in (7, 8)]
    with pytest.raises(Refused) as caught:
        table._engage(User("u", 1, 1, (), "/", "/bin/sh"))
    assert caught.value.code == "busy"


def test_a_worker_of_which_nobody_has_heard_yet_is_the_guest_s_own() -> None:
    """The memory guard may look between its fork and the answer; what a worker started, and a search, are not ours."""
    table = Workers(cast(Zygote, SimpleNamespace(pid=2)), cast(Pump, None), lambda *_: None, 0)
    table._one_offs = {9}
    young, search, program = (Entry(pid, parent, 1, 1, "S", "x", 0.0, 1, 1) for pid, parent in ((7, 2), (9, 2), (8, 7)))
    assert table.own_pids([young, search, program]) == {os.getpid(), 2, 7}
