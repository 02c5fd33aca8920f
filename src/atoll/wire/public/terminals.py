"""Bodies about terminals: how one starts, and what is said on its WebSocket beside the bytes.

Binary messages are what the terminal shows and what is typed. Text messages are JSON, one of the types below.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from atoll.wire.public.base import Answer, Problem, Request


class TerminalStart(Request):
    """Start a program on a terminal; without `argv` and `cmd`, the user's login shell."""

    argv: list[str] | None = None
    cmd: str | None = None
    env: dict[str, str] = {}
    cwd: str | None = None
    user: str | int | None = None
    login: bool = True
    cols: int = 80
    rows: int = 24
    tag: str | None = None


class TerminalResize(Request, tag="resize", tag_field="type"):
    """The window has another size now."""

    cols: int
    rows: int


class TerminalSignal(Request, tag="signal", tag_field="type"):
    """Send a signal to the foremost program and its group."""

    signal: str | int


TerminalOrder = TerminalResize | TerminalSignal


class TerminalAttached(Answer, tag="attached", tag_field="type"):
    """The first message: which process this is, and where in its output the bytes begin."""

    id: str
    pid: int
    offset: int


class TerminalDropped(Answer, tag="dropped", tag_field="type"):
    """Output that was overwritten before this reader came to it."""

    offset: int
    length: int


class TerminalExited(Answer, tag="exited", tag_field="type"):
    """The last message: how the program ended."""

    exit_code: int
    signal: int | None
    timed_out: bool
    oom: bool
    duration_s: float


class TerminalRefused(Answer, tag="refused", tag_field="type"):
    """What was asked for is not done, such as a signal that does not exist; all else goes on."""

    problem: Problem


class TerminalFailed(Answer, tag="failed", tag_field="type"):
    """The last message if something went wrong."""

    problem: Problem


TerminalEvent = TerminalAttached | TerminalDropped | TerminalExited | TerminalRefused | TerminalFailed


class TerminalTicket(Answer):
    """Opens one WebSocket once, in the query parameter `ticket`: for callers that cannot send headers."""

    ticket: str
    expires_at: datetime


def exited(words: Any) -> TerminalExited:
    """The same end, as a terminal says it."""
    return TerminalExited(
        exit_code=words.exit_code,
        signal=words.signal,
        timed_out=words.timed_out,
        oom=words.oom,
        duration_s=words.duration_s,
    )
