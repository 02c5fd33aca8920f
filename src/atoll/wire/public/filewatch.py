"""Events of a watched directory."""

from __future__ import annotations

from atoll.wire.public.base import Answer
from atoll.wire.public.processes import StreamFailed


class FileWatching(Answer, tag="watching", tag_field="type"):
    """From here on no change is missed silently; the first event."""

    path: str
    directories: int


class FileChanged(Answer, tag="changed", tag_field="type"):
    """Something happened to `path`.

    `change` is one of created, modified, written (its writer has closed it), attributes, removed, moved_from, moved_to,
    unreadable (a directory below that the user may not watch: what happens in there is not told). The two halves of a
    move have the same `cookie`.
    """

    change: str
    path: str
    directory: bool
    cookie: int | None = None


class FileOverflow(Answer, tag="overflow", tag_field="type"):
    """Changes came faster than they were read, and some are lost: look at the directory again."""

    path: str


class FileWatchEnded(Answer, tag="ended", tag_field="type"):
    """The directory is gone; the last event."""

    reason: str


FileEvent = FileWatching | FileChanged | FileOverflow | FileWatchEnded | StreamFailed
