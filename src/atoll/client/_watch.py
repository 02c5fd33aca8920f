"""The events of a watched folder, without I/O: bytes in, changes out."""

from __future__ import annotations

from atoll.client import _exchange as exchange
from atoll.model.errors import AtollError, ConnectionFailed, Internal
from atoll.wire import framing
from atoll.wire.public import FileChanged, FileEvent, FileOverflow, FileWatchEnded, FileWatching, StreamFailed

Change = FileChanged | FileOverflow


class WatchReader:
    """Reads the stream of one watch. What came before an error is handed out before the error is raised."""

    def __init__(self) -> None:
        self._frames = framing.Decoder()
        self._changes: list[Change] = []
        self._failure: AtollError | None = None
        self.watching = False
        self.ended = False

    def feed(self, data: bytes) -> None:
        """The next bytes; none means that the stream has ended, which is right only after its last event."""
        if self._failure is not None:
            raise self._failure
        if not data:
            raise ConnectionFailed("the watch ended without a word", code="connection_lost")
        try:
            frames = self._frames.feed(data)
        except framing.FrameError as error:
            raise Internal("the server's stream cannot be read", code="bad_answer", detail=str(error)) from None
        for frame in frames:
            if frame.kind == framing.CONTROL:
                self._take(exchange.decode(frame.payload, FileEvent))  # type: ignore[arg-type] # a union is no class

    def _take(self, event: object) -> None:
        if isinstance(event, StreamFailed):
            self._failure = exchange.problem_error(event.problem)
        elif isinstance(event, FileWatching):
            self.watching = True
        elif isinstance(event, FileWatchEnded):
            self.ended = True
        elif isinstance(event, FileChanged | FileOverflow):
            self._changes.append(event)

    def taken(self) -> list[Change]:
        """What has come since the last time."""
        changes, self._changes = self._changes, []
        return changes
