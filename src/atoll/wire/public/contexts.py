"""Bodies about contexts: stateful interpreters, the code that runs in them, and what comes of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from atoll.wire.public.base import Answer, Request
from atoll.wire.public.processes import StreamFailed
from atoll.wire.public.sandboxes import ResourcesBody


class ContextCreate(Request):
    """Make a context. Every language has a default one, named after it, which needs no making."""

    language: str = "python"
    cwd: str | None = None
    user: str | int | None = None


class ContextView(Answer):
    """A context. `state` is `stopped` (it starts with the next code), `starting`, `idle` or `busy`."""

    id: str
    language: str
    cwd: str
    user: str
    state: str
    execution: str | None
    queued: int
    created_at: datetime


class ContextList(Answer):
    """The contexts of a sandbox, and the languages that it can run."""

    items: list[ContextView]
    languages: list[str]


class ContextInterrupt(Request):
    """Stop what runs in a context; with `execution` only that one, also if it still waits for its turn."""

    execution: str | None = None


class ContextInterrupted(Answer):
    """Whether there was something to stop."""

    interrupted: bool


class ExecutionStart(Request):
    """Run code in a context. `env` is set for this run only; `stdin` is what `input()` and standard input read."""

    code: str
    env: dict[str, str] = {}
    timeout_s: float | None = 300
    stdin: str | None = None
    interrupt_on_disconnect: bool = True


class ExecutionStarted(Answer, tag="started", tag_field="type"):
    """The code has its place in the context's queue; the first event."""

    id: str
    context: str


class ExecutionOutput(Answer, tag="output", tag_field="type"):
    """Text that the code, or a program that it started, wrote; bytes that are not UTF-8 are replaced."""

    stream: str
    text: str


class ExecutionResult(Answer, tag="result", tag_field="type", omit_defaults=True):
    """One result in every form that the interpreter gave.

    `main` marks the value of the last expression; the others were displayed. Pictures and PDF are in base64. `data` are
    the columns of a data frame, `chart` is what a figure shows. A result with `display_id` can be replaced by a later
    one that has the same id and `update`.
    """

    main: bool = False
    text: str | None = None
    html: str | None = None
    markdown: str | None = None
    svg: str | None = None
    png: str | None = None
    jpeg: str | None = None
    pdf: str | None = None
    latex: str | None = None
    json: Any = None
    javascript: str | None = None
    data: dict[str, Any] | None = None
    chart: dict[str, Any] | None = None
    extra: dict[str, Any] = {}
    display_id: str | None = None
    update: bool = False


class ExecutionCleared(Answer, tag="cleared", tag_field="type"):
    """What was shown so far is to be removed; with `wait` only when something new comes."""

    wait: bool


class ExecutionError(Answer, tag="error", tag_field="type"):
    """The code failed. `ContextDied` says that its interpreter did; the next code finds a new one."""

    name: str
    value: str
    traceback: str


class ExecutionKeepalive(Answer, tag="keepalive", tag_field="type"):
    """Nothing happened for a while. It is not an event of the execution and not counted."""


class ExecutionEnded(Answer, tag="ended", tag_field="type"):
    """The last event. `status` is `ok`, `error`, `interrupted`, `timed_out` or `died`."""

    status: str
    execution_count: int | None
    exit_code: int
    duration_s: float
    truncated: bool


ExecutionEvent = (
    ExecutionStarted
    | ExecutionOutput
    | ExecutionResult
    | ExecutionCleared
    | ExecutionError
    | ExecutionKeepalive
    | ExecutionEnded
    | StreamFailed
)


class EvaluationStart(Request):
    """Run code in a sandbox that exists for it alone.

    `files` are put into the working directory first: relative path to content in base64. What the code leaves there is
    in the answer.
    """

    code: str
    language: str = "python"
    stdin: str | None = None
    files: dict[str, bytes] = {}
    env: dict[str, str] = {}
    timeout_s: float = 60
    template: str | None = None
    resources: ResourcesBody | None = None


class EvaluationView(Answer):
    """What came of it. `files` are those that are new or changed; `files_left_out` did not fit into the answer."""

    stdout: str
    stderr: str
    exit_code: int
    status: str
    results: list[ExecutionResult]
    error: ExecutionError | None
    files: dict[str, bytes]
    files_left_out: list[str]
    duration_s: float
    truncated: bool
