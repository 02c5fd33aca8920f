"""Bodies about sandboxes: what is asked for, and what is known."""

from __future__ import annotations

from datetime import datetime

import msgspec

from atoll.model.resources import Resources
from atoll.model.sandbox import DEFAULT_TEMPLATE, DEFAULT_TIMEOUT_S, Sandbox, SandboxSpec
from atoll.wire.public.base import Answer, Request


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
