"""Bodies about shell sessions: a bash that stays, and the commands that run in it."""

from __future__ import annotations

from atoll.wire.public.base import Answer, Request


class ShellStart(Request):
    """Start a session: a bash whose folder, variables and functions stay from command to command."""

    env: dict[str, str] = {}
    cwd: str | None = None
    user: str | int | None = None
    login: bool = False
    tag: str | None = None


class ShellView(Answer):
    id: str
    pid: int


class ShellRun(Request):
    """One command, or several lines of them. At `timeout_s` it is ended, and the session goes on if it can."""

    command: str
    timeout_s: float | None = None


class ShellExited(Answer, tag="exited", tag_field="type"):
    """The end of a command; `ended` says that the shell itself is gone, `cwd` where it stands now."""

    exit_code: int
    signal: int | None
    timed_out: bool
    oom: bool
    duration_s: float
    ended: bool = False
    cwd: str = ""
