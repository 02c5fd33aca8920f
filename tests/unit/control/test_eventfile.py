"""The audit log copied to a file without gaps: through crashes, full disks, rotations and logs that were put back."""

from __future__ import annotations

import json
import resource
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.control.authz import ALL_SCOPES, Principal
from atoll.control.eventfile import EventFile, _append
from atoll.control.events import Events
from atoll.control.store.engine import Store, sqlite_url
from atoll.model.errors import Unavailable
from atoll.telemetry import Metrics
from atoll.testing.clock import VirtualClock

pytestmark = pytest.mark.anyio

ME = Principal("default", "ak", ALL_SCOPES)


@pytest.fixture
async def events(tmp_path: Path) -> AsyncIterator[Events]:
    async with Store.open(sqlite_url(tmp_path / "db")) as store:
        yield Events(store, VirtualClock(), Metrics())


async def test_the_file_goes_on_where_it_stopped(events: Events, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"

    async def write(count: int) -> None:
        for _ in range(count):
            events.note(ME, "a", "", "ok")
        await events.flush()

    def numbers() -> list[int]:
        return [json.loads(line)["number"] for line in path.read_text().splitlines()]

    await write(3)
    await EventFile(path, events).step()
    assert numbers() == [1, 2, 3]
    with path.open("a") as file:
        file.write('{"number": 4, "cut')  # a crash in the middle of a line
    await write(2)
    await EventFile(path, events).step()
    assert numbers() == [1, 2, 3, 4, 5]
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("something else\n")
    with pytest.raises(Unavailable):
        await EventFile(path, events).step()


async def test_a_line_for_which_there_was_no_room_is_not_half_in_the_file(events: Events, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for _ in range(3):
        events.note(ME, "a", "", "ok")
    await events.flush()
    copy = EventFile(path, events)
    await copy.step()
    whole = path.read_bytes()
    limits_before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 100, limits_before[1]))
    try:
        with pytest.raises(Unavailable):
            _append(path, '{"number": 4}\n' * 20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits_before)
    assert path.read_bytes() == whole
    events.note(ME, "b", "", "ok")
    await events.flush()
    await copy.step()
    assert [json.loads(line)["number"] for line in path.read_text().splitlines()] == [1, 2, 3, 4]


async def test_the_file_goes_on_after_a_log_that_was_put_back(events: Events, tmp_path: Path) -> None:
    """Its numbers come again with other entries: none of those is missing in the file."""
    path = tmp_path / "events.jsonl"
    for _ in range(3):
        events.note(ME, "before", "", "ok")
    await events.flush()
    await EventFile(path, events).step()
    lines = path.read_text().splitlines()
    later = [
        {**json.loads(lines[-1]), "number": number, "at": f"2026-01-09T0{number}:00:00+00:00"} for number in (4, 5)
    ]
    path.write_text("\n".join((*lines, *map(json.dumps, later))) + "\n")  # 4 and 5 were lost with the disk
    await events._clock.advance(1)  # type: ignore[attr-defined]
    events.note(ME, "after", "", "ok")
    await events.flush()
    await EventFile(path, events).step()
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(one["number"], one["action"]) for one in found[5:]] == [(4, "after")]
    await events.forget(0)
    events.note(ME, "fresh", "", "ok")
    await events.flush()
    await EventFile(path, events).step()
    assert [json.loads(line)["action"] for line in path.read_text().splitlines()[5:]] == ["after", "fresh"]


async def test_a_file_that_was_rotated_goes_on_where_it_stopped(events: Events, tmp_path: Path) -> None:
    """Moved away or emptied, while a server ran or while none did; with its place lost, all comes again."""
    path = tmp_path / "events.jsonl"

    async def write() -> None:
        for _ in range(2):
            events.note(ME, "a", "", "ok")
        await events.flush()

    def numbers() -> list[int]:
        return [json.loads(line)["number"] for line in path.read_text().splitlines()]

    await write()
    copy = EventFile(path, events)
    await copy.step()
    path.rename(tmp_path / "events.jsonl.1")
    await write()
    await copy.step()
    assert numbers() == [3, 4]
    path.rename(tmp_path / "events.jsonl.2")
    await write()
    await EventFile(path, events).step()
    assert numbers() == [5, 6]
    path.write_text("")
    await write()
    await EventFile(path, events).step()
    assert numbers() == [7, 8]
    place = path.with_name("events.jsonl.place")
    assert place.stat().st_mode & 0o777 == 0o600
    path.unlink()
    place.write_text("{")
    await EventFile(path, events).step()
    assert numbers() == [1, 2, 3, 4, 5, 6, 7, 8]
