"""One piece of code and all that came of it, in order, bounded, and readable again from any event on."""

from __future__ import annotations

import codecs
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from atoll.model import limits
from atoll.wire import framing

_STREAMS = {framing.STDOUT: "stdout", framing.STDERR: "stderr"}


class Entry(NamedTuple):
    """One event: output as text in UTF-8, a result as JSON, or something said (then `event` has it)."""

    kind: int
    payload: bytes
    event: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for."""

    code: str
    env: dict[str, str] = field(default_factory=dict)
    timeout_s: float | None = None
    stdin: str | None = None


class Execution:
    """Fields change under the lock of its context; its log has a lock of its own, for readers."""

    def __init__(self, request: Request, context_id: str) -> None:
        self.id = os.urandom(6).hex()
        self.context_id = context_id
        self.request = request
        self.asked_to_stop = ""  # why: "interrupted" or "timed_out"
        self.failed = False
        self.ended = False
        self.truncated = False
        self.size_bytes = 0
        self.watchers: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._entries: list[Entry] = []
        self._taken = 0  # entries that some reader has seen, and that therefore stay as they are
        self._stream_bytes = {framing.STDOUT: 0, framing.STDERR: 0}
        self._text = {kind: codecs.getincrementaldecoder("utf-8")("replace") for kind in _STREAMS}
        self._started_s = time.monotonic()

    def begin(self) -> None:
        self._started_s = time.monotonic()

    # --- writing: one thread ---

    def add_output(self, kind: int, data: bytes) -> None:
        text = self._text[kind].decode(data).encode("utf-8")
        room = min(
            limits.EXECUTION_STREAM_BYTES_MAX - self._stream_bytes[kind], limits.EXECUTION_BYTES_MAX - self.size_bytes
        )
        if room < 0 or not text:
            return
        if len(text) > room or len(self._entries) >= limits.EXECUTION_EVENTS_MAX:
            mark = f"\n[cut: {_STREAMS[kind]} is over its limit]\n".encode()
            text = text[:room].decode("utf-8", "ignore").encode() + mark
            self._stream_bytes[kind] = limits.EXECUTION_STREAM_BYTES_MAX + 1
            self.truncated = True
        self._stream_bytes[kind] += len(text)
        self._add(Entry(kind, text))

    def add_result(self, payload: bytes) -> None:
        if self.size_bytes + len(payload) > limits.EXECUTION_BYTES_MAX:
            return self._cut("a result is")
        if len(self._entries) >= limits.EXECUTION_EVENTS_MAX:
            return self._cut("the number of results is")
        return self._add(Entry(framing.OUTPUT, payload))

    def _cut(self, what: str) -> None:
        if not self.truncated:
            self.truncated = True
            mark = f"\n[cut: {what} over the limit of one execution]\n".encode()
            self._add(Entry(framing.STDERR, mark))

    def add_event(self, event: dict[str, Any]) -> None:
        self._add(Entry(framing.CONTROL, b"", event))

    def add_error(self, name: str, value: str, traceback: str) -> None:
        self.failed = True
        self.add_event({"type": "error", "name": name, "value": value, "traceback": traceback})

    def end(self, status: str, *, count: int | None, exit_code: int) -> None:
        for kind, decoder in self._text.items():
            if rest := decoder.decode(b"", final=True):
                self._add(Entry(kind, rest.encode()))
        event = {
            "type": "ended",
            "status": status,
            "count": count,
            "exit_code": exit_code,
            "duration_s": round(time.monotonic() - self._started_s, 6),
            "truncated": self.truncated,
        }
        self.ended = True
        self.add_event(event)

    def _add(self, entry: Entry) -> None:
        with self._lock:
            last = self._entries[-1] if len(self._entries) > self._taken else None
            joins = last is not None and last.kind == entry.kind and entry.kind in _STREAMS
            if last is not None and joins and len(last.payload) < limits.EXECUTION_GATHER_BYTES:
                self._entries[-1] = Entry(entry.kind, last.payload + entry.payload)
            else:
                self._entries.append(entry)
            self.size_bytes += len(entry.payload)
            watchers = tuple(self.watchers)
        for wake in watchers:
            wake()

    # --- reading: any thread ---

    def watch(self, wake: Callable[[], None]) -> None:
        with self._lock:
            self.watchers.append(wake)

    def unwatch(self, wake: Callable[[], None]) -> int:
        """How many others still watch."""
        with self._lock:
            self.watchers.remove(wake)
            return len(self.watchers)

    def read(self, index: int) -> list[Entry]:
        """All events from this one on."""
        with self._lock:
            self._taken = len(self._entries)
            return self._entries[index:]
