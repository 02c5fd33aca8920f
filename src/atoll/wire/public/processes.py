"""Bodies about processes: how one starts, and the events it emits."""

from __future__ import annotations

from datetime import datetime

from atoll.wire.public.base import Answer, Problem, Request


class PtySize(Request):
    """The size of a terminal, in characters."""

    cols: int = 80
    rows: int = 24


class ProcessStart(Request):
    """Start a process: `argv` as it is, or `cmd` as a line for the shell; exactly one of them."""

    argv: list[str] | None = None
    cmd: str | None = None
    env: dict[str, str] = {}
    cwd: str | None = None
    user: str | int | None = None
    login: bool = False
    pty: PtySize | None = None
    stdin: bool = False
    timeout_s: float | None = None
    tag: str | None = None
    kill_on_disconnect: bool = False
    nice: int = 0


class ProcessStarted(Answer, tag="started", tag_field="type"):
    """The process runs; its first event."""

    id: str
    pid: int


class ProcessOutput(Answer, tag="output", tag_field="type"):
    """Bytes that a process wrote, in base64, and where they stand in its stream."""

    stream: str
    offset: int
    data: bytes


class ProcessDropped(Answer, tag="dropped", tag_field="type"):
    """Bytes that were overwritten before this reader came to them."""

    stream: str
    offset: int
    length: int


class ProcessExited(Answer, tag="exited", tag_field="type"):
    """The end of a process; its last event."""

    exit_code: int
    signal: int | None
    timed_out: bool
    oom: bool
    duration_s: float


class StreamFailed(Answer, tag="failed", tag_field="type"):
    """The stream ends because of an error; the body is that of a problem."""

    problem: Problem


ProcessEvent = ProcessStarted | ProcessOutput | ProcessDropped | ProcessExited | StreamFailed


class ProcessView(Answer):
    id: str
    pid: int
    argv: list[str]
    tag: str | None
    user: str
    cwd: str
    running: bool
    exit_code: int | None
    started_at: datetime
    pty: bool = False
    stdin: bool = False
    stdin_offset: int = 0
    shell: bool = False
    signal: int | None = None
    timed_out: bool = False
    oom: bool = False
    duration_s: float | None = None


class ProcessList(Answer):
    items: list[ProcessView]


class ProcessSignal(Request):
    """Send a signal, by name (TERM) or number, to a process, its group, or its whole tree, sessions of its own too."""

    signal: str | int = "KILL"
    group: bool = True
    tree: bool = False


class InputWritten(Answer):
    """How many bytes were taken for a process's standard input, and how many it was given in all."""

    written: int
    offset: int = 0
