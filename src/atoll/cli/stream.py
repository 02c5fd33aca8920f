"""A process in a sandbox as if it ran here: its output, our standard input, Ctrl-C, and its exit code."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
from collections.abc import Iterable, Iterator

from atoll.client import Output, Process, ProcessDropped, ProcessExited
from atoll.model import limits
from atoll.model.errors import AtollError


def stdin_is_given() -> bool:
    """Whether somebody feeds us: a pipe, a file or a socket. A terminal or /dev/null is nobody."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def follow(process: Process, *, feed_stdin: bool = False) -> int:
    """Show the process until its end, and give the exit code that a shell would.

    The first Ctrl-C goes to the process, which may do as it likes with it; the second ends it.
    """
    if feed_stdin:
        threading.Thread(target=_feed, args=(process,), daemon=True, name="stdin").start()
    interrupts = 0
    while True:
        try:
            for event in process:
                show(event)
                if isinstance(event, ProcessExited):
                    return _exit_code(event)
            return process.exit_code or 0
        except KeyboardInterrupt:
            interrupts += 1
            # It may have ended in this very moment; then the stream says so.
            with contextlib.suppress(AtollError):
                process.signal("INT" if interrupts == 1 else "KILL")


def show(event: Output | ProcessDropped | ProcessExited) -> None:
    if isinstance(event, Output):
        stream = sys.stdout if event.stream == "stdout" else sys.stderr
        stream.buffer.write(event.data)
        stream.buffer.flush()
    elif isinstance(event, ProcessDropped):
        print(f"\natoll: {event.length} bytes of {event.stream} came too fast and are lost", file=sys.stderr)
    elif event.timed_out:
        print(f"atoll: ended at its time limit, after {event.duration_s:.1f} s", file=sys.stderr)
    elif event.oom:
        print("atoll: ended because the sandbox ran out of memory", file=sys.stderr)


def _exit_code(event: ProcessExited) -> int:
    if event.timed_out:
        return 124  # as timeout(1) does
    if event.signal is not None:
        return 128 + event.signal
    return event.exit_code & 0xFF


def _feed(process: Process) -> None:
    """Our standard input to the process, until one of them ends."""
    # A process that ended, or closed its input, wants no more: as with a pipe.
    with contextlib.suppress(AtollError):
        for data in _pieces():
            process.write(data)
        process.close_stdin()


def standard_input() -> Iterator[bytes]:
    """What we are given, to its end."""
    while data := sys.stdin.buffer.read(limits.UPLOAD_CHUNK_BYTES):
        yield data


def to_standard_output(pieces: Iterable[bytes]) -> None:
    """Bytes as they are."""
    for data in pieces:
        sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _pieces() -> Iterator[bytes]:
    """The same as it comes, piece by piece, and in a thread that may be left behind."""
    while data := os.read(sys.stdin.fileno(), limits.UPLOAD_CHUNK_BYTES):
        yield data
