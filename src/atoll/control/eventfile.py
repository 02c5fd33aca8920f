"""The audit log copied to a file, which may be moved away or cut off at any time.

Where the copy stopped is in the file itself: the number of its last whole line. A line that was cut off is written
anew. A file that was rotated has no lines; so the place is also kept beside it, in `<file>.place`, written after each
copy. A crash between the two, followed by a rotation, has some lines come again; none is ever missing.
"""

from __future__ import annotations

import json
import os
from collections import deque
from pathlib import Path

import anyio.to_thread

from atoll.control.events import EventFilter, Events, as_json
from atoll.model import limits
from atoll.model.errors import Unavailable

Place = tuple[int, str]
"""An entry that was copied, by its number and its time."""


class EventFile:
    """Copies the log, of all tenants, into a file, one JSON object a line; after a crash it goes on without a gap."""

    def __init__(self, path: Path, events: Events) -> None:
        self._path = path
        self._events = events
        self._number: int | None = None
        self._copied: deque[Place] = deque(maxlen=limits.EVENT_PLACES_MAX)

    async def step(self) -> None:
        """Copy what there is, or wait for more."""
        if self._number is None:
            copied = await anyio.to_thread.run_sync(_recover, self._path)
            self._number = await self._events.common(copied)
            self._copied.extend(copied)
        everything = EventFilter(owner=None)
        page = await self._events.page(everything, self._number, limits.EVENT_PAGE_MAX, limits.EVENT_WAIT_S_MAX)
        if page.items:
            lines = "".join(json.dumps(as_json(event)) + "\n" for event in page.items)
            await anyio.to_thread.run_sync(_append, self._path, lines)
            self._number = page.next
            self._copied.extend((event.number, event.at.isoformat()) for event in page.items)
            await anyio.to_thread.run_sync(_keep_place, self._path, list(self._copied))


def _recover(path: Path) -> list[Place]:
    """The last events in the file, which is cut after them, or beside it. Its end is enough to see that."""
    try:
        with path.open("rb+") as file:
            size = file.seek(0, os.SEEK_END)
            begin = max(0, size - 64 * limits.KIB)
            file.seek(begin)
            tail = file.read()
            whole, newline, _ = tail.rpartition(b"\n")
            file.truncate(begin + len(whole) + len(newline))
            lines = whole.split(b"\n") if whole else []
            entries = [json.loads(line) for line in (lines[1:] if begin and len(lines) > 1 else lines)]
            if entries:
                return [(int(entry["number"]), str(entry["at"])) for entry in entries]
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unavailable(f"the events file {path} cannot be continued: {error}", code="bad_events_file") from error
    return _kept_place(path)


def _place_path(path: Path) -> Path:
    return path.with_name(path.name + ".place")


def _kept_place(path: Path) -> list[Place]:
    """What `_keep_place` has written; without it, or where it is damaged, the whole log is copied again."""
    try:
        return [(int(number), str(at)) for number, at in json.loads(_place_path(path).read_bytes())]
    except (FileNotFoundError, ValueError, TypeError):
        return []
    except OSError as error:
        raise _unwritable(path, error) from error


def _keep_place(path: Path, copied: list[Place]) -> None:
    draft = path.with_name(path.name + ".place.new")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_TRUNC | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            json.dump(copied, file)
        draft.replace(_place_path(path))
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> Unavailable:
    return Unavailable(f"the events file {path} cannot be written: {error.strerror}", code="bad_events_file")


def _append(path: Path, lines: str) -> None:
    """All of the lines or none: what a full disk has cut off would stand in the middle of the file for good."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "ab", buffering=0) as file:
            begin = file.seek(0, os.SEEK_END)
            try:
                left = memoryview(lines.encode("utf-8"))
                while left:
                    left = left[file.write(left) :]
            except OSError:
                file.truncate(begin)
                raise
    except OSError as error:
        raise _unwritable(path, error) from error
