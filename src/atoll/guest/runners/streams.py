"""Standard output and error of an interpreter, as frames in the order of everything else that it says.

What is written now and then goes out at once; what is written in a rush is gathered for a few milliseconds.
"""

from __future__ import annotations

import io
import os
import threading
import time

from atoll.guest.runners.link import Link

_GATHER_BYTES_MAX = 64 * 1024
_GATHER_S = 0.01


class Stream(io.TextIOBase):
    def __init__(self, link: Link, kind: int, fd: int) -> None:
        self._link = link
        self._kind = kind
        self._fd = fd
        self._lock = threading.RLock()
        self._parts: list[str] = []
        self._size = 0
        self._sent_s = 0.0
        self._pending = threading.Event()
        self._flusher: threading.Thread | None = None
        self.buffer = _Bytes(self)

    encoding = "utf-8"
    errors = "replace"

    @property
    def name(self) -> str:
        return "<stdout>" if self._fd == 1 else "<stderr>"

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if not self._link.is_ours:
            os.write(self._fd, text.encode("utf-8", "replace"))  # a forked child writes where its own children write
            return len(text)
        with self._lock:
            self._parts.append(text)
            self._size += len(text)
            if self._size >= _GATHER_BYTES_MAX or ("\n" in text and time.monotonic() - self._sent_s > _GATHER_S):
                self.flush()
            elif not self._pending.is_set():
                self._pending.set()
                self._start_flusher()
        return len(text)

    def flush(self) -> None:
        if not self._link.is_ours:
            return
        with self._lock:
            text = "".join(self._parts)
            self._parts.clear()
            self._size = 0
            if text:
                data = text.encode("utf-8", "replace")
                for start in range(0, len(data), _GATHER_BYTES_MAX * 8):
                    self._link.send(self._kind, data[start : start + _GATHER_BYTES_MAX * 8])
                self._sent_s = time.monotonic()

    def _start_flusher(self) -> None:
        if self._flusher is None:
            self._flusher = threading.Thread(target=self._flush_for_ever, daemon=True, name="atoll-output")
            self._flusher.start()

    def _flush_for_ever(self) -> None:
        while True:
            self._pending.wait()
            time.sleep(_GATHER_S)
            self._pending.clear()
            self.flush()


class _Bytes(io.RawIOBase):
    """`sys.stdout.buffer`: bytes that need not be text."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, data: object) -> int:
        raw = bytes(data)  # type: ignore[call-overload]
        self._stream.write(raw.decode("utf-8", "replace"))
        return len(raw)

    def flush(self) -> None:
        self._stream.flush()
