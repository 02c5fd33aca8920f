"""The bodies of the public API, version 1: what `/v1` takes and gives, as typed values.

Server and SDK share these classes, so a field exists on both sides or on neither. Times are RFC 3339 in UTC. Unknown
fields in a request are refused (a misspelt `timeout` must not pass silently); unknown fields in an answer are ignored,
so that an older SDK talks to a newer server.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from atoll.model.resources import Resources
from atoll.model.sandbox import DEFAULT_TEMPLATE, DEFAULT_TIMEOUT_S, Sandbox, SandboxSpec


class Request(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Something a caller sends."""


class Answer(msgspec.Struct, kw_only=True):
    """Something the server sends."""


class ResourcesBody(Request):
    """The limits of a sandbox; what is left out has its default."""

    cpu: float | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    pids: int | None = None

    def resources(self) -> Resources:
        given = {key: value for key, value in msgspec.structs.asdict(self).items() if value is not None}
        return Resources(**given)


class SandboxCreate(Request):
    """Ask for a sandbox."""

    template: str = DEFAULT_TEMPLATE
    name: str | None = None
    metadata: dict[str, str] = {}
    env: dict[str, str] = {}
    resources: ResourcesBody = msgspec.field(default_factory=ResourcesBody)
    timeout_s: float = DEFAULT_TIMEOUT_S

    def spec(self) -> SandboxSpec:
        return SandboxSpec(
            template=self.template,
            name=self.name,
            metadata=self.metadata,
            env=self.env,
            resources=self.resources.resources(),
            timeout_s=self.timeout_s,
        )


class SandboxDeadline(Request):
    """Move the deadline: so many seconds from now."""

    timeout_s: float


class ResourcesView(Answer):
    cpu: float
    memory_bytes: int
    disk_bytes: int
    pids: int


class SandboxView(Answer):
    """A sandbox, as its owner sees it."""

    id: str
    template: str
    name: str | None
    metadata: dict[str, str]
    resources: ResourcesView
    state: str
    created_at: datetime
    started_at: datetime | None
    deadline_at: datetime
    ended_at: datetime | None
    end_reason: str | None
    end_detail: str

    @classmethod
    def of(cls, sandbox: Sandbox) -> SandboxView:
        resources = sandbox.resources
        return cls(
            id=sandbox.id,
            template=sandbox.template,
            name=sandbox.name,
            metadata=dict(sandbox.metadata),
            resources=ResourcesView(
                cpu=resources.cpu,
                memory_bytes=resources.memory_bytes,
                disk_bytes=resources.disk_bytes,
                pids=resources.pids,
            ),
            state=sandbox.state.value,
            created_at=sandbox.created_at,
            started_at=sandbox.started_at,
            deadline_at=sandbox.deadline_at,
            ended_at=sandbox.ended_at,
            end_reason=sandbox.end_reason.value if sandbox.end_reason else None,
            end_detail=sandbox.end_detail,
        )


class SandboxCreated(Answer):
    """A new sandbox, and where the time of its creation went."""

    sandbox: SandboxView
    steps_ms: dict[str, float]


class SandboxPage(Answer):
    """One page of sandboxes, newest first; `next` is the cursor of the following page, or null at the end."""

    items: list[SandboxView]
    next: str | None


class TemplateView(Answer):
    name: str
    key: str
    user: str
    workdir: str


class TemplateList(Answer):
    items: list[TemplateView]


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
    user: str | None = None
    login: bool = False
    pty: PtySize | None = None
    stdin: bool = False
    timeout_s: float | None = None
    tag: str | None = None
    kill_on_disconnect: bool = False


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


class ProcessList(Answer):
    items: list[ProcessView]


class ProcessSignal(Request):
    """Send a signal, by name (TERM) or number, to a process or to its whole group."""

    signal: str | int = "KILL"
    group: bool = True


class FileView(Answer):
    path: str
    name: str
    type: str
    size: int
    mode: int
    owner: str
    group: str
    modified_at: datetime
    link_target: str | None = None


class FileList(Answer):
    items: list[FileView]


class FileWritten(Answer):
    path: str
    size: int


class DirectoryCreate(Request):
    """Make a directory and those above it; one that is there already is fine."""

    path: str
    user: str | None = None


class FileMove(Request):
    """Move or rename a file or a directory."""

    source: str
    target: str
    user: str | None = None


class NodeView(Answer):
    """What the machine has and how much of it is used."""

    sandboxes: int
    memory_total_bytes: int
    memory_available_bytes: int
    memory_promised_bytes: int
    disk_total_bytes: int
    disk_free_bytes: int


class InputWritten(Answer):
    """How many bytes went into a process's standard input."""

    written: int


class Health(Answer):
    status: str
    version: str


class Problem(Answer):
    """An error (RFC 9457, problem+json). `code` is stable; `hint` says what to do."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    hint: str = ""
    retryable: bool = False
    request_id: str = ""


def to_builtins(value: Any) -> Any:
    """A body as plain JSON values."""
    return msgspec.to_builtins(value)
